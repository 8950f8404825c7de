//! Where the value of a key came from, so that a fault names the flag or the line it stands in.

use herd_core::diagnostic::Diagnostics;
use herd_core::skypilot::Places;
use herd_core::text::quoted;
use herd_core::validate::Refusal;

use crate::cli::job::JobArgs;
use crate::error::Fault;

/// Gives each fault of a key the flag that set it, or moves it to the place in the file where the key
/// stands. `bytes` is the content of the file, where there is one.
pub(super) fn place(
    args: &JobArgs,
    bytes: Option<&[u8]>,
    file_name: &str,
    faults: &mut Vec<Fault>,
) -> Option<Diagnostics> {
    let places = bytes.and_then(|bytes| Places::new(bytes, file_name));
    let mut moved = Vec::new();
    faults.retain_mut(|fault| {
        let Some(key) = fault.key.clone() else {
            return true;
        };
        let refusal = || Refusal {
            message: fault.text.clone(),
            hint: fault.hint.clone(),
        };
        if let Some(flag) = flag(args, &key) {
            fault.text = format!("{flag}: {}", fault.text);
            fault.key = None;
            return true;
        }
        let placed = places
            .as_ref()
            .and_then(|places| match places.fault(&key, refusal()) {
                None if key == "run" => Some(places.missing(&key, refusal())),
                placed => placed,
            });
        moved.extend(placed.clone());
        placed.is_none()
    });
    let places = places.filter(|_| !moved.is_empty())?;
    Some(places.show(moved))
}

/// The flag that set a key, with its value; the value of a variable or a secret may be private.
fn flag(args: &JobArgs, key: &str) -> Option<String> {
    let (name, value) = match key {
        "nodes" => ("--nodes", &args.nodes),
        "procs_per_node" => ("--procs-per-node", &args.procs_per_node),
        "resources.cpus" => ("--cpus", &args.cpus),
        "resources.memory" => ("--mem", &args.mem),
        "resources.gpus" | "resources.gpu_type" => ("--gpus", &args.gpus),
        "walltime" => ("--time", &args.time),
        "type" => ("--type", &args.job_type),
        "name" => ("--name", &args.name),
        "backend" => ("--backend", &args.backend),
        _ => {
            let (section, name) = key.split_once('.')?;
            let names = match section {
                "env" => &args.env,
                "secrets" => &args.secret,
                _ => return None,
            };
            let given = names.iter().find(|text| {
                let rest = text.strip_prefix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            });
            let flag = if section == "env" {
                "--env"
            } else {
                "--secret"
            };
            return given.map(|_| format!("{flag} {name}"));
        }
    };
    let value = value.as_ref()?;
    Some(format!("{name} {}", quoted(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_the_flag_or_the_line_that_its_key_came_from() {
        let args = JobArgs {
            gpus: Some("h800:1".to_owned()),
            secret: vec!["T=env:X".to_owned()],
            env: vec!["A=private".to_owned()],
            ..JobArgs::default()
        };
        let mut faults = vec![
            Fault::of("resources.gpus", "too many"),
            Fault::of("secrets.T", "is not set"),
            Fault::of("env.A", "no"),
            Fault::of("nodes", "too many").hint("ask for fewer"),
            Fault::of("priority", "no"),
        ];
        let text = b"nodes: 2\nresources: {gpus: 4}\nrun: a\n";
        let file = place(&args, Some(text), "job.yaml", &mut faults).unwrap();
        let file = file.to_string();
        assert!(file.starts_with("job.yaml:1:8: nodes: too many"), "{file}");
        assert!(file.ends_with("hint: ask for fewer"), "{file}");
        let said: Vec<_> = faults.iter().map(|fault| fault.text.as_str()).collect();
        assert_eq!(
            said,
            [
                "--gpus `h800:1`: too many",
                "--secret T: is not set",
                "--env A: no",
                "no"
            ]
        );
        assert_eq!(faults[3].key.as_deref(), Some("priority"));
        let mut faults = vec![Fault::of("nodes", "too many")];
        assert!(place(&args, None, "", &mut faults).is_none());
        assert_eq!(faults.len(), 1);
    }
}
