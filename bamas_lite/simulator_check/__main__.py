from bamas_lite.simulator_check.halves import main

raise SystemExit(main())
