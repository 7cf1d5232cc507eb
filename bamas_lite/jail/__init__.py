"""What runs inside the sandbox. It needs the standard library only, and is started by a bare interpreter as `jail.server`.

`values` carries plain data across the wall, `system` builds the wall, `server` runs one untrusted program after another.
"""
