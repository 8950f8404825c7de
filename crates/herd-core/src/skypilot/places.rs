//! Where a key stands in a job file or task file, for faults that are found after it was read.

use std::collections::BTreeSet;

use super::looks_like_skypilot;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::jobfile;
use crate::validate::Refusal;
use crate::yaml::{self, Node, Value};

/// A job's keys as a SkyPilot task calls them.
const TASK_NAMES: &[(&str, &str)] = &[
    ("nodes", "num_nodes"),
    ("env", "envs"),
    ("resources.gpus", "resources.accelerators"),
    ("resources.gpu_type", "resources.accelerators"),
];

/// A file that was read, asked where its keys stand.
#[derive(Debug)]
pub struct Places<'f> {
    file_name: &'f str,
    bytes: &'f [u8],
    root: Node,
    is_task: bool,
}

impl<'f> Places<'f> {
    /// The places in a file of either kind; nothing where it is no YAML.
    pub fn new(bytes: &'f [u8], file_name: &'f str) -> Option<Self> {
        let root = yaml::parse(bytes).ok()?.root;
        Some(Self {
            is_task: looks_like_skypilot(&root),
            file_name,
            bytes,
            root,
        })
    }

    /// A fault of a job's key at the place where the file has the key; nothing where it has not.
    pub fn fault(&self, key: &str, refusal: Refusal) -> Option<Diagnostic> {
        let key = if self.is_task {
            renamed(key, TASK_NAMES.iter().copied())
        } else {
            key.to_owned()
        };
        let node = find(&self.root, &key)?;
        Some(Diagnostic {
            position: node.position,
            width: node.width,
            path: key,
            refusal,
        })
    }

    /// A fault of a key that the whole file misses.
    pub fn missing(&self, key: &str, refusal: Refusal) -> Diagnostic {
        Diagnostic {
            position: self.root.position,
            width: self.root.width,
            path: key.to_owned(),
            refusal,
        }
    }

    /// The faults with the lines they stand in.
    pub fn show(&self, faults: Vec<Diagnostic>) -> Diagnostics {
        let hidden: BTreeSet<u32> = jobfile::secret_lines(&self.root);
        Diagnostics::new(self.file_name, self.bytes, faults, &hidden)
    }
}

/// What a job file calls a key of a task.
pub(super) fn job_key(key: &str) -> String {
    renamed(
        key,
        TASK_NAMES.iter().map(|(ours, theirs)| (*theirs, *ours)),
    )
}

/// A key under the name that the first pair that has it gives to it, or its own.
fn renamed(key: &str, names: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    for (from, to) in names {
        match key.strip_prefix(from) {
            Some("") => return to.to_owned(),
            Some(rest) if rest.starts_with('.') => return format!("{to}{rest}"),
            _ => {}
        }
    }
    key.to_owned()
}

/// The node at a path, whose keys may hold dots themselves.
fn find<'n>(node: &'n Node, path: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Mapping(entries) => {
            entries
                .iter()
                .find_map(|entry| match path.strip_prefix(entry.key.as_str())? {
                    "" => Some(&entry.value),
                    rest => match rest.strip_prefix('.') {
                        Some(inner) => find(&entry.value, inner),
                        None => item(&entry.value, rest),
                    },
                })
        }
        Value::Scalar(_) | Value::Sequence(_) => None,
    }
}

/// The item of a list that `[3]` names, or the list itself where there is no such item.
fn item<'n>(list: &'n Node, rest: &str) -> Option<&'n Node> {
    let (index, rest) = rest.strip_prefix('[')?.split_once(']')?;
    let items = list.sequence().unwrap_or_default();
    let found = index.parse().ok().and_then(|index: usize| items.get(index));
    let Some(found) = found else {
        return Some(list);
    };
    match rest.strip_prefix('.') {
        Some(inner) => find(found, inner),
        None => Some(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_stands_where_the_file_has_the_key() {
        let text = b"num_nodes: 2\nresources:\n  accelerators: H100:1\nfile_mounts:\n  /a.b/c: ./d\nsecrets:\n  T: x\n";
        let places = Places::new(text, "sky.yaml").unwrap();
        let shown = |key: &str| {
            let fault = places.fault(key, Refusal::new("no").with_hint("try"));
            fault.map(|fault| places.show(vec![fault]).to_string())
        };
        assert_eq!(
            shown("resources.gpus").unwrap(),
            "sky.yaml:3:17: resources.accelerators: no\n  |\n3 |   accelerators: H100:1\n  |                 \
             ^^^^^^\nhint: try"
        );
        assert!(
            shown("nodes")
                .unwrap()
                .starts_with("sky.yaml:1:12: num_nodes: no")
        );
        assert!(
            shown("file_mounts./a.b/c")
                .unwrap()
                .starts_with("sky.yaml:5:11:")
        );
        assert!(!shown("secrets.T").unwrap().contains("| "));
        assert_eq!(shown("walltime"), None);
        let job = Places::new(b"nodes: 2\nafter: [a]\n", "j").unwrap();
        for (key, place) in [
            ("nodes", "j:1:8"),
            ("after[0]", "j:2:9"),
            ("after[7]", "j:2:8"),
        ] {
            let fault = job.fault(key, Refusal::new("no")).unwrap();
            assert!(
                job.show(vec![fault]).to_string().starts_with(place),
                "{key}"
            );
        }
    }
}
