from bamas_lite.recorded_answers.summary import main

raise SystemExit(main())
