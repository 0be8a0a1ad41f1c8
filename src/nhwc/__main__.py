"""``python -m nhwc`` is the ``nhwc`` command."""

from nhwc.cli.main import main

if __name__ == "__main__":
    main()
