//! Values: what is understood, and what is refused with which sentence.

use std::net::IpAddr;

use super::*;

#[test]
fn row45_usage_errors_say_what_and_hint() {
    for (arguments, said) in [
        (
            &["--nnodes", "a", "s"][..],
            "--nnodes: `a` is not `N` or `MIN:MAX`",
        ),
        (&["--nnodes=0", "s"], "0 < MIN <= MAX"),
        (&["--nnodes=3:2", "s"], "0 < MIN <= MAX"),
        (&["--nnodes=1:2:3", "s"], "is not `N`"),
        (&["--nnodes=0:2", "s"], "0 < MIN"),
        (&["--nnodes=99999", "s"], "too large"),
        (&["--nproc-per-node=0", "s"], "number of workers"),
        (&["--nproc-per-node=x", "s"], "number of workers"),
        (&["--nproc-per-node=-1", "s"], "number of workers"),
        (&["--max-restarts", "-1", "s"], "--max-restarts: `-1`"),
        (&["--node-rank=2", "--nnodes=2", "s"], "outside of 2 nodes"),
        (
            &["--rdzv-backend=c10d", "--rdzv-endpoint=0.0.0.0:29500", "s"],
            "address of no machine",
        ),
        (
            &["--rdzv-backend=c10d", "--rdzv-endpoint=[::]:29500", "s"],
            "address of no machine",
        ),
        (&["--tee", "4", "s"], "--tee: `4`"),
        (&["--rdzv-conf", "a=", "s"], "no value for `a`"),
        (&["--rdzv-conf", "a=1,,b=2", "s"], "without a name"),
        (&["--rdzv-endpoint=h:99999", "s"], "port from 0 to 65535"),
        (&["--rdzv-endpoint=h:", "s"], "port"),
        (&["--rdzv-endpoint=[::1", "s"], "bracket"),
        (&["--rdzv-endpoint=h", "s"], "has no port"),
        (&["--master-port=-1", "s"], "no port"),
        (&["--local-ranks-filter=a", "s"], "list of ranks"),
        (&["--shutdown-timeout=-1", "s"], "number of seconds"),
        (&["--shutdown-timeout=nan", "s"], "number of seconds"),
        (&["--monitor-interval=0", "s"], "interval"),
        (&["--hang-timeout=30", "s"], "needs a unit"),
        (&["--start-method=fock", "s"], "did you mean `fork`?"),
        (&["--numa-binding=near", "s"], "core-complex"),
        (&["--event-log-handler=kafka", "s"], "file:PATH"),
        (&["--store-allow=10.0.0.0/33", "s"], "network"),
        (&["-m", "--no-python", "s"], "exclude each other"),
        (&["--standalone=1", "s"], "takes no value"),
        (&["--nnodes"], "needs a value"),
        (&["--nnodes", "--role", "x", "s"], "needs a value"),
        (&["--unknown", "s"], "no flag `--unknown`"),
        (
            &["--rdzv_endpont=x", "s"],
            "did you mean `--rdzv-endpoint`?",
        ),
        (&[], "no training script"),
        (&["--nnodes=2"], "no training script"),
        (&[""], "no training script"),
        (&["--rdzv-backend=etcd", "s"], "--rdzv-backend=c10d"),
        (&["--rdzv-backend=etcd-v2", "s"], "--rdzv-backend=c10d"),
        (&["--rdzv-backend=mine", "s"], "plug-ins"),
        (&["--logs-specs=mine", "s"], "--log-dir"),
    ] {
        let error = error(arguments);
        let text = error.to_string();
        assert!(text.contains(said), "{arguments:?}: {text}");
        assert!(text.contains("\nhint: "), "{arguments:?}: {text}");
        assert_eq!(FlagError::EXIT_CODE, 2);
    }
    let odd = [
        OsString::from("--role"),
        OsStr::from_bytes(b"\xff").to_owned(),
        "s".into(),
    ];
    assert!(
        parse(&odd, &|_| None)
            .unwrap_err()
            .to_string()
            .contains("UTF-8")
    );
}

#[test]
fn row44_counts_and_lists() {
    assert_eq!(
        flags(&["--nnodes=1:4", "s"]).nnodes,
        NodeCount { min: 1, max: 4 }
    );
    for (text, expected) in [
        ("8", NprocPerNode::Count(8)),
        ("cpu", NprocPerNode::Cpu),
        ("gpu", NprocPerNode::Gpu),
        ("xpu", NprocPerNode::Xpu),
        ("auto", NprocPerNode::Auto),
    ] {
        assert_eq!(
            flags(&["--nproc-per-node", text, "s"]).nproc_per_node,
            expected
        );
    }
    let conf = flags(&["--rdzv-conf= a = 1 ,b=x=y,c=no,a=2.5", "s"]).rdzv_conf;
    assert_eq!(conf.get("b"), Some("x=y"));
    assert_eq!(
        conf.seconds("a").unwrap(),
        Some(Duration::from_millis(2500))
    );
    assert_eq!(conf.flag("c").unwrap(), Some(false));
    assert_eq!(conf.count("absent").unwrap(), None);
    let text = conf.count("b").unwrap_err().to_string();
    assert!(text.starts_with("--rdzv-conf: `b=x=y`"), "{text}");
    let filter = flags(&["--local-ranks-filter", "0,2-3", "s"])
        .local_ranks_filter
        .unwrap();
    assert_eq!(
        [0, 1, 2, 3, 4].map(|rank| filter.contains(rank)),
        [true, false, true, true, false]
    );
    assert_eq!(
        flags(&["--local-ranks-filter=", "s"]).local_ranks_filter,
        None
    );
}

#[test]
fn row12_filters_between_commas() {
    let flags = flags(&["--duplicate-stdout-filters", "app,,le,zed,", "s"]);
    assert_eq!(flags.duplicate_stdout_filters, ["app,le", "zed"]);
    assert!(flags.duplicate_stderr_filters.is_empty());
}

#[test]
fn row47_the_rendezvous_of_the_flags() {
    let meets = |arguments: &[&str]| flags(&[arguments, &["s"]].concat()).rendezvous().unwrap();
    let fixed = |host: &str, port, node_rank| Rendezvous::Static {
        host: host.to_owned(),
        port,
        node_rank,
    };
    let c10d = |host: &str, port| Rendezvous::C10d {
        host: host.to_owned(),
        port,
    };
    assert_eq!(meets(&["--nnodes=2"]), fixed("127.0.0.1", 29500, 0));
    assert_eq!(
        meets(&["--nnodes=1", "--master-port=1234"]),
        fixed("127.0.0.1", 1234, 0)
    );
    assert_eq!(
        meets(&[
            "--nnodes=2",
            "--node-rank=1",
            "--master-addr=n0",
            "--master-port=1"
        ]),
        fixed("n0", 1, 1)
    );
    assert_eq!(
        meets(&["--nnodes=2", "--rdzv-endpoint=n0:5"]),
        fixed("n0", 5, 0)
    );
    assert_eq!(meets(&["--rdzv-backend=c10d"]), c10d("localhost", 29400));
    assert_eq!(
        meets(&["--rdzv-backend=c10d", "--rdzv-endpoint=:7"]),
        c10d("localhost", 7)
    );
    assert_eq!(
        meets(&["--rdzv-backend=c10d", "--rdzv-endpoint=[fd00::1]:7"]),
        c10d("fd00::1", 7)
    );
    assert_eq!(
        meets(&["--rdzv-backend=c10d", "--rdzv-endpoint=fd00::1"]),
        c10d("fd00::1", 29400)
    );
    assert_eq!(
        meets(&["--master-addr=[::1]", "--master-port=3"]),
        fixed("::1", 3, 0)
    );
    assert_eq!(meets(&["--node-rank=4"]), Rendezvous::Standalone);
    let both = flags(&["--standalone", "--rdzv-backend=c10d", "--rdzv-id=j", "s"]);
    assert_eq!(both.rendezvous().unwrap(), Rendezvous::Standalone);
    assert!(both.warnings.concat().contains("--rdzv-backend, --rdzv-id"));
    let endpoint = both
        .rdzv_endpoint
        .or_else(|| flags(&["--rdzv-endpoint=[::1]:7", "s"]).rdzv_endpoint);
    assert_eq!(endpoint.unwrap().to_string(), "[::1]:7");
}

#[test]
fn endpoints_are_read_as_torchrun_reads_them() {
    let read = |text: &str| {
        let given = format!("--rdzv-endpoint={text}");
        let endpoint = flags(&["--rdzv-backend=c10d", &given, "s"]).rdzv_endpoint;
        endpoint.map(|endpoint| (endpoint.host, endpoint.port))
    };
    assert_eq!(read("h0"), Some(("h0".into(), None)));
    assert_eq!(read("h0:0"), Some(("h0".into(), Some(0))));
    assert_eq!(read(" h0:29400 "), Some(("h0".into(), Some(29_400))));
    assert_eq!(read("::1"), Some(("::1".into(), None)));
    assert_eq!(read("[::1]:5"), Some(("::1".into(), Some(5))));
    assert_eq!(read("[fe80::1]"), Some(("fe80::1".into(), None)));
    for bad in [
        "h0:", "h0:65536", "h0:-1", "h0:+1", "h0:x", "[::1", "[::1]5", "a b:1", "a:b:1",
    ] {
        let given = format!("--rdzv-endpoint={bad}");
        let refused = error(&["--rdzv-backend=c10d", &given, "s"]).to_string();
        assert!(refused.contains(bad), "{refused}");
    }
}

#[test]
fn row26_signals_by_name_and_the_unknown_apart() {
    let flags = flags(&[
        "--signals-to-handle",
        "SIGUSR1,usr2,SIGKILL,NONSENSE,SIGUSR1",
        "s",
    ]);
    assert_eq!(
        flags.signals_to_handle.signals,
        [Signal::USR1, Signal::USR2]
    );
    assert_eq!(flags.signals_to_handle.unknown, ["SIGKILL", "NONSENSE"]);
    assert_eq!(
        flags.signals_to_handle.text,
        "SIGUSR1,usr2,SIGKILL,NONSENSE,SIGUSR1"
    );
    assert!(flags.warnings.concat().contains("SIGKILL, NONSENSE"));
}

#[test]
fn row44_other_variables_of_torchrun() {
    let environment = [
        ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"),
        ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${rank}>"),
    ];
    let plain = with(&["s"], &environment);
    assert_eq!(plain.shutdown_timeout, Duration::from_secs(7));
    assert_eq!(plain.log_line_prefix_template.as_deref(), Some("${rank}>"));
    let given = with(
        &["--shutdown-timeout=2", "--log-line-prefix-template=x", "s"],
        &environment,
    );
    assert_eq!(given.shutdown_timeout, Duration::from_secs(2));
    assert_eq!(given.log_line_prefix_template.as_deref(), Some("x"));
    let error = command(&["s"], &[("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "-1")]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
    );
}

#[test]
fn networks_of_the_store() {
    let flags = flags(&[
        "--store-allow=10.0.0.0/8,::1",
        "--store-allow",
        "0.0.0.0/0",
        "s",
    ]);
    let allowed = |index: usize, address: &str| {
        flags.store_allow[index].contains(address.parse::<IpAddr>().unwrap())
    };
    assert!(allowed(0, "10.9.8.7") && allowed(0, "::ffff:10.1.1.1") && !allowed(0, "11.0.0.1"));
    assert!(allowed(1, "::1") && !allowed(1, "::2") && !allowed(1, "127.0.0.1"));
    assert!(allowed(2, "1.2.3.4") && !allowed(2, "::1"));
}
