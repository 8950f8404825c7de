//! Row 40: the processors of the four modes in made-up sysfs trees.

use std::fs;

use super::*;

/// One processor.
struct Cpu {
    node: u32,
    package: u32,
    /// Lowest processor of its core.
    core: usize,
    /// Lowest processor of its last-level cache.
    cache: usize,
}

/// A machine: for each processor its node, socket, core and last-level cache.
struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    fn new(cpus: &[Cpu], device_nodes: &[i32]) -> Self {
        let machine = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let among = |wanted: &dyn Fn(&Cpu) -> bool| {
            let numbers: Vec<_> = (0..cpus.len()).filter(|cpu| wanted(&cpus[*cpu])).collect();
            ranges(&numbers)
        };
        for (number, cpu) in cpus.iter().enumerate() {
            let place = format!("devices/system/cpu/cpu{number}");
            machine.write(
                &format!("{place}/topology/physical_package_id"),
                &cpu.package.to_string(),
            );
            machine.write(
                &format!("{place}/topology/thread_siblings_list"),
                &among(&|other| other.core == cpu.core),
            );
            for (index, level, kind, shared) in [
                (0, 1, "Data", number.to_string()),
                (1, 4, "Instruction", "0".to_owned()),
                (2, 3, "Unified", among(&|other| other.cache == cpu.cache)),
                (3, 2, "Unified", number.to_string()),
            ] {
                let cache = format!("{place}/cache/index{index}");
                machine.write(&format!("{cache}/level"), &level.to_string());
                machine.write(&format!("{cache}/type"), kind);
                machine.write(&format!("{cache}/shared_cpu_list"), &shared);
            }
            let of_node = among(&|other| other.node == cpu.node);
            machine.write(
                &format!("devices/system/node/node{}/cpulist", cpu.node),
                &of_node,
            );
        }
        machine.write("devices/system/node/possible", "0-7");
        for (device, node) in devices(device_nodes.len()).iter().zip(device_nodes) {
            let place = format!("bus/pci/devices/{device}");
            machine.write(&format!("{place}/numa_node"), &node.to_string());
            machine.write(&format!("{place}/vendor"), "0x10de");
            machine.write(&format!("{place}/class"), "0x030200");
        }
        machine
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    }

    fn cpus(&self, mode: AffinityMode, local_rank: u32) -> Result<Vec<usize>, NumaError> {
        let all: Vec<usize> = (0..64).collect();
        self.allowed(mode, local_rank, &all)
    }

    fn allowed(
        &self,
        mode: AffinityMode,
        local_rank: u32,
        allowed: &[usize],
    ) -> Result<Vec<usize>, NumaError> {
        let root = self.directory.path();
        cpus(root, mode, &accelerators(root), local_rank, allowed)
    }
}

fn devices(count: usize) -> Vec<PciAddress> {
    let address = |index| PciAddress {
        domain: 0,
        bus: 0x3b,
        device: u8::try_from(index).unwrap(),
    };
    (0..count).map(address).collect()
}

/// Two sockets with two nodes each, four cores with two threads (n, n + 16) on each node, and two
/// cores behind each cache.
fn large(device_nodes: &[i32]) -> Machine {
    let cpus: Vec<_> = (0..32)
        .map(|cpu| {
            let core = cpu % 16;
            let node = u32::try_from(core / 4).unwrap();
            Cpu {
                node,
                package: node / 2,
                core,
                cache: core / 2 * 2,
            }
        })
        .collect();
    Machine::new(&cpus, device_nodes)
}

#[test]
fn row40_node_is_all_of_the_devices_node() {
    let machine = large(&[1, 3, -1]);
    let node = |rank| machine.cpus(AffinityMode::Node, rank).unwrap();
    assert_eq!(ranges(&node(0)), "4-7,20-23");
    assert_eq!(ranges(&node(1)), "12-15,28-31");
    // No node is told: node 0.
    assert_eq!(ranges(&node(2)), "0-3,16-19");
    let some = machine
        .allowed(AffinityMode::Node, 0, &[0, 5, 22, 40])
        .unwrap();
    assert_eq!(some, [5, 22]);
}

#[test]
fn row40_socket_is_all_nodes_of_the_socket() {
    let machine = large(&[1, 3]);
    let socket = |rank| ranges(&machine.cpus(AffinityMode::Socket, rank).unwrap());
    assert_eq!(socket(0), "0-7,16-23");
    assert_eq!(socket(1), "8-15,24-31");
    // Node 0 has no usable processor: it belongs to no socket.
    let some = machine
        .allowed(AffinityMode::Socket, 0, &[4, 21, 8])
        .unwrap();
    assert_eq!(some, [4, 21]);
}

#[test]
fn row40_exclusive_divides_cores_with_all_their_threads() {
    let machine = large(&[0, 1, 0]);
    let share = |rank| ranges(&machine.cpus(AffinityMode::Exclusive, rank).unwrap());
    assert_eq!(share(0), "0-1,16-17");
    assert_eq!(share(1), "4-7,20-23");
    assert_eq!(share(2), "2-3,18-19");
}

#[test]
fn row40_exclusive_divides_unevenly() {
    let machine = large(&[0, 0, 0]);
    let share = |rank| ranges(&machine.cpus(AffinityMode::Exclusive, rank).unwrap());
    assert_eq!(
        ["0-1,16-17", "2,18", "3,19"].map(str::to_owned),
        [share(0), share(1), share(2)]
    );
    // Core 0 is known by its lowest thread though only the other one may be used.
    let some = |rank| {
        machine
            .allowed(AffinityMode::Exclusive, rank, &[16, 1, 2, 18])
            .unwrap()
    };
    assert_eq!(
        [some(0), some(1), some(2)],
        [vec![16], vec![1], vec![2, 18]]
    );
    let error = machine
        .allowed(AffinityMode::Exclusive, 0, &[0, 16, 1])
        .unwrap_err();
    assert!(
        matches!(
            error,
            NumaError::TooFewCores {
                node: 0,
                cores: 2,
                devices: 3
            }
        ),
        "{error}"
    );
}

#[test]
fn row40_core_complex_takes_the_largest_first() {
    let machine = large(&[0, 0, 0, 2]);
    let complex = |rank| ranges(&machine.cpus(AffinityMode::CoreComplex, rank).unwrap());
    assert_eq!(complex(0), "0-1,16-17");
    assert_eq!(complex(1), "2-3,18-19");
    // More devices than caches: around again.
    assert_eq!(complex(2), "0-1,16-17");
    assert_eq!(complex(3), "8-9,24-25");
    let some = |rank| {
        let allowed = [1, 2, 3, 18];
        machine
            .allowed(AffinityMode::CoreComplex, rank, &allowed)
            .unwrap()
    };
    assert_eq!([some(0), some(1)], [vec![2, 3, 18], vec![1]]);
}

#[test]
fn row40_errors_say_what_is_missing() {
    let none = large(&[]);
    assert!(matches!(
        none.cpus(AffinityMode::Node, 0),
        Err(NumaError::NoAccelerator)
    ));
    let machine = large(&[0, 1]);
    let said = |result: Result<Vec<usize>, NumaError>| result.unwrap_err().to_string();
    for mode in [
        AffinityMode::Node,
        AffinityMode::Socket,
        AffinityMode::Exclusive,
        AffinityMode::CoreComplex,
    ] {
        assert!(said(machine.cpus(mode, 2)).contains("this node shows 2"));
        assert!(
            said(machine.allowed(mode, 0, &[5])).contains("no usable CPU"),
            "{mode:?}"
        );
    }
    machine.write("devices/system/node/node1/cpulist", "4-x");
    assert!(said(machine.cpus(AffinityMode::Node, 1)).contains("`4-x`"));
    fs::remove_file(
        machine
            .directory
            .path()
            .join("devices/system/node/node1/cpulist"),
    )
    .unwrap();
    assert!(matches!(
        machine.cpus(AffinityMode::Node, 1),
        Err(NumaError::Read { .. })
    ));
}

#[test]
fn row40_lists_of_processors_as_linux_writes_them() {
    assert_eq!(ranges(&[0, 1, 2, 4]), "0-2,4");
    assert_eq!(ranges(&[]), "");
    assert_eq!(ranges(&[7]), "7");
    for text in ["1-", "-1", "3-1", "a", "1,,2", "0-99999999999", "65536"] {
        assert_eq!(cpulist::parse(text), None, "{text}");
    }
    assert_eq!(cpulist::parse(" \n").unwrap().len(), 0);
}

#[test]
fn devices_are_found_and_chosen() {
    let machine = large(&[0, 0, 0]);
    machine.write("bus/pci/devices/0000:00:02.0/vendor", "0x1234");
    machine.write("bus/pci/devices/0000:00:02.0/class", "0x030000");
    machine.write("bus/pci/devices/0000:3b:00.1/vendor", "0x10de");
    machine.write("bus/pci/devices/0000:3b:00.1/class", "0x040300");
    let all = accelerators(machine.directory.path());
    assert_eq!(all, devices(3));
    assert_eq!(visible(&all, None).unwrap(), all);
    assert_eq!(visible(&all, Some("2, 0")).unwrap(), [all[2], all[0]]);
    assert_eq!(visible(&all, Some("1,-1,0")).unwrap(), [all[1]]);
    assert_eq!(visible(&all, Some("")).unwrap(), []);
    assert!(matches!(
        visible(&all, Some("GPU-5")),
        Err(NumaError::UnknownDevice { .. })
    ));
    assert_eq!(
        "0000:3b:1f.0".parse::<PciAddress>().unwrap().to_string(),
        "0000:3b:1f.0"
    );
    for text in [
        "",
        "0000:3b:00.1",
        "3b:00.0",
        "0000:3b:00:00.0",
        "0000:3g:00.0",
    ] {
        assert_eq!(text.parse::<PciAddress>(), Err(InvalidPciAddress), "{text}");
    }
}
