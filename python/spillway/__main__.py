"""`python -m spillway`: the `spillway` command."""
from spillway._command import main

main()
