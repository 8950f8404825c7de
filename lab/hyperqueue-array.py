"""Runs TASKS times /bin/true with HyperQueue on CORES cores, each with a file for its output, and prints how many
seconds passed between the submission and the end of the last. Arguments: TASKS CORES. HOME and the working
directory take the files."""

import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

tasks, cores = int(sys.argv[1]), int(sys.argv[2])
with LocalCluster(worker_config=WorkerConfig(cores=cores)) as cluster:
    client = cluster.client()
    # One task first, so that the worker is there before the time is taken.
    first = Job()
    first.program(["/bin/true"])
    client.wait_for_jobs([client.submit(first)])
    job = Job()
    for _ in range(tasks):
        job.program(["/bin/true"], stderr=None)
    begin = time.monotonic()
    client.wait_for_jobs([client.submit(job)])
    took = time.monotonic() - begin
print(took)
