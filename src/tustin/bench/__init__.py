"""How fast it is: measured beside the peers a user would pick instead, and beside the limits of the machine."""
