//! Row 40 from outside: workers are bound as a made-up machine's topology says, within the processors
//! that there are. Bigger machines are in the unit tests of `herd_launch::torchrun::numa`.

use std::fs;
use std::path::Path;

use crate::fixture::{Launch, assert_status, err, out, sorted};

/// Two devices on these nodes, of a machine with two nodes of one processor each, one package, and
/// a cache for each processor.
fn sysfs(root: &Path, nodes_of_devices: &[u32], cpus_of_nodes: &[&str], own: [usize; 2]) {
    let write = |path: String, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (index, node) in nodes_of_devices.iter().enumerate() {
        let device = format!("bus/pci/devices/0000:{index:02x}:00.0");
        write(format!("{device}/vendor"), "0x10de\n");
        write(format!("{device}/class"), "0x030200\n");
        write(format!("{device}/numa_node"), &format!("{node}\n"));
    }
    let last = cpus_of_nodes.len() - 1;
    write(
        "devices/system/node/possible".to_owned(),
        &format!("0-{last}\n"),
    );
    for (node, cpus) in cpus_of_nodes.iter().enumerate() {
        write(
            format!("devices/system/node/node{node}/cpulist"),
            &format!("{cpus}\n"),
        );
    }
    for cpu in own {
        let at = format!("devices/system/cpu/cpu{cpu}");
        write(format!("{at}/topology/physical_package_id"), "0\n");
        write(
            format!("{at}/topology/thread_siblings_list"),
            &format!("{cpu}\n"),
        );
        for (index, kind, level, shared) in [(0, "Data", 1, cpu), (1, "Unified", 3, cpu)] {
            let cache = format!("{at}/cache/index{index}");
            write(format!("{cache}/type"), &format!("{kind}\n"));
            write(format!("{cache}/level"), &format!("{level}\n"));
            write(format!("{cache}/shared_cpu_list"), &format!("{shared}\n"));
        }
    }
}

/// Two processors that this process may use.
fn two_processors() -> [usize; 2] {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let all = (0..nix::sched::CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    let some: Vec<usize> = all.take(2).collect();
    some.try_into().expect("this test needs two processors")
}

#[test]
fn row_40_workers_are_bound_as_the_topology_says() {
    let [a, b] = two_processors();
    let both = format!("{a},{b}");
    let range = if b == a + 1 {
        format!("{a}-{b}")
    } else {
        both.clone()
    };
    let (one, other) = (a.to_string(), b.to_string());
    let apart = [one.as_str(), other.as_str()];
    for (mode, devices, nodes, expected) in [
        ("node", [0, 1], &apart[..], [&one, &other]),
        ("node", [1, 1], &apart[..], [&other, &other]),
        ("socket", [0, 1], &apart[..], [&range, &range]),
        ("exclusive", [0, 0], &[both.as_str()][..], [&one, &other]),
        ("core-complex", [0, 0], &[both.as_str()][..], [&one, &other]),
    ] {
        let launch =
            Launch::new("echo $RANK $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)");
        sysfs(&launch.path("sys"), &devices, nodes, [a, b]);
        let flag = format!("--numa-binding={mode}");
        let output = launch
            .command(&["--nproc-per-node=2", &flag], &[])
            .env("HERD_LAUNCH_TEST_SYSFS_ROOT", launch.path("sys"))
            .env_remove("CUDA_VISIBLE_DEVICES")
            .output()
            .unwrap();
        assert_status(&output, 0);
        let [first, second] = expected;
        assert_eq!(
            sorted(&out(&output)),
            [format!("0 {first}"), format!("1 {second}")],
            "{mode}"
        );
    }
}

#[test]
fn row_40_uneven_division_gives_the_first_device_more_and_too_few_cores_are_refused() {
    let [a, b] = two_processors();
    let both = format!("{a},{b}");
    let launch = Launch::new("exit 0");
    sysfs(&launch.path("sys"), &[0, 0, 0], &[&both], [a, b]);
    let output = launch
        .command(&["--nproc-per-node=3", "--numa-binding=exclusive"], &[])
        .env("HERD_LAUNCH_TEST_SYSFS_ROOT", launch.path("sys"))
        .env_remove("CUDA_VISIBLE_DEVICES")
        .output()
        .unwrap();
    assert_status(&output, 1);
    assert!(
        err(&output).contains("2 usable cores for 3 devices"),
        "{}",
        err(&output)
    );
    // One device has both.
    let launch = Launch::new("exec sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status");
    sysfs(&launch.path("sys"), &[0], &[&both], [a, b]);
    let output = launch
        .command(&["--numa-binding=exclusive"], &[])
        .env("HERD_LAUNCH_TEST_SYSFS_ROOT", launch.path("sys"))
        .env_remove("CUDA_VISIBLE_DEVICES")
        .output()
        .unwrap();
    let range = if b == a + 1 {
        format!("{a}-{b}\n")
    } else {
        format!("{both}\n")
    };
    assert_eq!(out(&output), range);
}
