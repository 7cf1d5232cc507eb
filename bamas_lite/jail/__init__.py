"""What runs inside the sandbox, with the standard library only: a bare interpreter starts `jail.server`.

`values` carries plain data across the wall, `system` builds the wall, `refusals` has the kernel refuse what no task
needs, `server` runs untrusted programs behind it.
"""
