from herdsman._install import install as install
from herdsman.errors import HerdError as HerdError
from herdsman.errors import InvalidJobError as InvalidJobError
from herdsman.errors import JobCancelledError as JobCancelledError
from herdsman.errors import JobError as JobError
from herdsman.errors import JobFailedError as JobFailedError
from herdsman.errors import JobRejectedError as JobRejectedError
from herdsman.errors import NoSuchJobError as NoSuchJobError
from herdsman.executor import Executor as Executor
from herdsman.jobs import Job as Job
from herdsman.jobs import submit as submit
from herdsman.multiprocessing.errors import get_error_handler as get_error_handler
from herdsman.multiprocessing.errors import record as record

__version__: str
