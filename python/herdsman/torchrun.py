"""`python -m herdsman.torchrun …`: torch's own `torchrun`, with its options, on this package's workers."""

import sys

from herdsman._install import install


def main(args=None):
    """Runs torchrun with these arguments, those of the command line unless given."""
    install()
    from torch.distributed.run import main as torchrun

    return torchrun(args)


if __name__ == "__main__":
    sys.exit(main())
