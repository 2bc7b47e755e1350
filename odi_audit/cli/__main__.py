"""``python -m odi_audit.cli``: the same as ``odi-audit``.

Owns nothing. Must never do more than call it.
"""

from odi_audit.cli.app import main

if __name__ == "__main__":
    main()
