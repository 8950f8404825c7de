//! Reasons that are no limits of accounting: what each means and what may be changed.

use super::Class::{self, Ended, Held, Never, Site, Turn};

/// One reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) code: &'static str,
    pub(super) class: Class,
    pub(super) meaning: &'static str,
    pub(super) change: &'static str,
}

const fn plain(
    code: &'static str,
    class: Class,
    meaning: &'static str,
    change: &'static str,
) -> Plain {
    Plain {
        code,
        class,
        meaning,
        change,
    }
}

const WAIT: &str = "nothing; it starts by itself";
const ASK: &str = "nothing; ask the administrators";
const ENDED: &str = "nothing; the job is over, `herd logs` shows its output";
const SMALLER: &str = "lower `nodes`, `resources` or `walltime`, or use another partition";

/// Sorted by code.
pub(super) const PLAIN: &[Plain] = &[
    plain(
        "AccountNotAllowed",
        Never,
        "the partition does not let in the job's account",
        "use another account (`slurm.account`) or partition (`slurm.partition`)",
    ),
    plain(
        "AccountingPolicy",
        Turn,
        "a limit of accounting that Slurm does not name more closely",
        "wait, or ask for less",
    ),
    plain(
        "AssociationJobLimit",
        Turn,
        "the account runs as many jobs as its limit allows",
        "wait until some of them have ended, or use another account (`slurm.account`)",
    ),
    plain(
        "AssociationResourceLimit",
        Turn,
        "the account has all the resources that its limit allows",
        "wait until some of its jobs have ended, or use another account (`slurm.account`)",
    ),
    plain(
        "AssociationTimeLimit",
        Turn,
        "the account has used up its time, or this job would",
        "lower `walltime`, or use another account (`slurm.account`)",
    ),
    plain(
        "BadConstraints",
        Never,
        "no node of the cluster has all that the job asks for",
        "change `--constraint` in `slurm.extra`, `resources` or `slurm.partition`",
    ),
    plain(
        "BeginTime",
        Turn,
        "its earliest start is not reached; after a requeue Slurm waits until the old credential has run out",
        WAIT,
    ),
    plain(
        "BurstBufferOperation",
        Site,
        "an operation of the burst buffer failed",
        ASK,
    ),
    plain(
        "BurstBufferResources",
        Turn,
        "the burst buffer has not enough space just now",
        WAIT,
    ),
    plain(
        "BurstBufferStageIn",
        Turn,
        "data are being copied into the burst buffer",
        WAIT,
    ),
    plain(
        "Cleaning",
        Turn,
        "the last attempt is still being cleaned up after a requeue",
        WAIT,
    ),
    plain(
        "Constraints",
        Turn,
        "no node that is free has all that the job asks for",
        "wait, or change `--constraint` in `slurm.extra`",
    ),
    plain(
        "DeadLine",
        Ended,
        "it could not have ended before its deadline",
        ENDED,
    ),
    plain(
        "Dependency",
        Turn,
        "a job that it comes after has not ended",
        WAIT,
    ),
    plain(
        "DependencyNeverSatisfied",
        Never,
        "a job that it comes after ended otherwise than `after` asks",
        "cancel it, or submit it again with another `after`",
    ),
    plain(
        "FedJobLock",
        Turn,
        "the clusters of the federation agree on who runs it",
        WAIT,
    ),
    plain("FrontEndDown", Site, "no front-end node can run it", ASK),
    plain(
        "InactiveLimit",
        Ended,
        "it did nothing for longer than the site allows",
        ENDED,
    ),
    plain(
        "InvaildReason",
        Turn,
        "Slurm itself has no word for it",
        WAIT,
    ),
    plain(
        "InvalidAccount",
        Never,
        "the account does not exist, or you are not in it",
        "use another account (`slurm.account`)",
    ),
    plain(
        "InvalidQOS",
        Never,
        "the QOS does not exist, or the account may not use it",
        "use another QOS (`slurm.qos`)",
    ),
    plain(
        "InvalidReason",
        Turn,
        "Slurm itself has no word for it",
        WAIT,
    ),
    plain(
        "JobArrayTaskLimit",
        Turn,
        "as many tasks of the array run as its own limit allows",
        "wait, or raise the number after `%` in `array`",
    ),
    plain(
        "JobHeldAdmin",
        Held,
        "an administrator holds it, root among them",
        ASK,
    ),
    plain(
        "JobHeldUser",
        Held,
        "its owner holds it",
        "`herd release JOB`",
    ),
    plain(
        "JobHoldMaxRequeue",
        Held,
        "its batch script could not be started too often, so Slurm holds it",
        "ask the administrators why, then `herd release JOB`",
    ),
    plain(
        "JobLaunchFailure",
        Ended,
        "its batch script could not be started, or a signal ended it",
        ENDED,
    ),
    plain(
        "Licenses",
        Turn,
        "not enough licenses are free",
        "wait, or lower `--licenses` in `slurm.extra`",
    ),
    plain(
        "MaxMemPerLimit",
        Never,
        "it asks for more memory per CPU or node than the site allows",
        "lower `resources.memory`, or raise `resources.cpus` with it",
    ),
    plain(
        "MaxPoweredUpNodes",
        Turn,
        "as many nodes are powered up as the site allows",
        WAIT,
    ),
    plain(
        "MpiPortsBusy",
        Turn,
        "the ports that Slurm reserves for MPI are all in use on the nodes",
        WAIT,
    ),
    plain(
        "NodeDown",
        Turn,
        "a node that it needs is down",
        "wait, or leave out `--nodelist` in `slurm.extra`",
    ),
    plain(
        "Nodes",
        Turn,
        "nodes that it needs are down, drained or kept for a partition that goes first",
        "wait until they are back; fewer `nodes` or another partition (`slurm.partition`) may do without them",
    ),
    plain(
        "NonZeroExitCode",
        Ended,
        "it exited with a code other than 0",
        ENDED,
    ),
    plain(
        "None",
        Turn,
        "the scheduler has not looked at it yet, or nothing keeps it",
        WAIT,
    ),
    plain(
        "NvidiaImexChannels",
        Turn,
        "no channel for NVIDIA's shared memory between nodes is free",
        WAIT,
    ),
    plain(
        "OutOfMemory",
        Ended,
        "it used more memory than it asked for",
        "raise `resources.memory`",
    ),
    plain(
        "PartitionConfig",
        Never,
        "it asks for something that the partition's settings do not allow",
        SMALLER,
    ),
    plain(
        "PartitionDown",
        Site,
        "the partition is down: it takes jobs and starts none",
        "wait, or use another partition (`slurm.partition`)",
    ),
    plain(
        "PartitionInactive",
        Site,
        "the partition is switched off",
        "use another partition (`slurm.partition`)",
    ),
    plain(
        "PartitionNodeLimit",
        Never,
        "it asks for more or fewer nodes than the partition gives, or than are up in it",
        "change `nodes`, or use another partition (`slurm.partition`)",
    ),
    plain(
        "PartitionTimeLimit",
        Never,
        "its time limit is beyond the partition's",
        "lower `walltime`, or use another partition (`slurm.partition`)",
    ),
    plain(
        "PowerNotAvail",
        Turn,
        "not enough electrical power is free",
        WAIT,
    ),
    plain(
        "PowerReserved",
        Turn,
        "electrical power is kept for a reservation",
        WAIT,
    ),
    plain(
        "Priority",
        Turn,
        "jobs of higher priority are before it in the partition",
        "wait; a shorter `walltime` and fewer nodes let the scheduler fit it in earlier",
    ),
    plain(
        "Prolog",
        Turn,
        "the site's prolog is still running on its nodes",
        WAIT,
    ),
    plain(
        "QOSJobLimit",
        Turn,
        "as many jobs run in the QOS as its limit allows",
        "wait until some of them have ended, or use another QOS (`slurm.qos`)",
    ),
    plain(
        "QOSNotAllowed",
        Never,
        "the partition or account does not allow the QOS",
        "use another QOS (`slurm.qos`) or partition (`slurm.partition`)",
    ),
    plain(
        "QOSResourceLimit",
        Turn,
        "the QOS has all the resources that its limit allows",
        "wait until some of its jobs have ended, or use another QOS (`slurm.qos`)",
    ),
    plain(
        "QOSTimeLimit",
        Turn,
        "the QOS has used up its time, or this job would",
        "lower `walltime`, or use another QOS (`slurm.qos`)",
    ),
    plain(
        "QOSUsageThreshold",
        Turn,
        "the account's share has fallen below what the QOS demands",
        "wait until it has recovered, or use another QOS (`slurm.qos`)",
    ),
    plain("RaisedSignal", Ended, "a signal ended it", ENDED),
    plain(
        "ReqNodeNotAvail",
        Turn,
        "a node that it needs is down, drained, reserved or about to be used for maintenance",
        "wait, leave out `--nodelist` in `slurm.extra`, or shorten `walltime` so that it ends before the maintenance",
    ),
    plain(
        "Reservation",
        Turn,
        "its reservation has not begun, or is full",
        "wait, or leave out `--reservation` in `slurm.extra`",
    ),
    plain(
        "ReservationDeleted",
        Held,
        "its reservation was deleted",
        "submit it again without `--reservation`",
    ),
    plain(
        "ReservationInvalid",
        Never,
        "its reservation does not exist, has ended, or does not let it in",
        "change `--reservation` in `slurm.extra`",
    ),
    plain(
        "Resources",
        Turn,
        "what it asks for is in use",
        "wait; a shorter `walltime` and fewer nodes let the scheduler fit it in earlier",
    ),
    plain(
        "SchedDefer",
        Turn,
        "the site lets jobs start only when the scheduler next looks",
        WAIT,
    ),
    plain(
        "SystemFailure",
        Ended,
        "Slurm, a file system or the network failed",
        "submit it again; if it happens twice, ask the administrators",
    ),
    plain(
        "TimeLimit",
        Ended,
        "its time limit passed",
        "raise `walltime`",
    ),
];
