//! SkyPilot's `resources` as amounts per node.

use crate::jobfile::{Reader, keys};
use crate::spec::Resources;
use crate::text::quoted;
use crate::units::Bytes;
use crate::validate::{self, Refusal};
use crate::yaml::Node;

/// Reads the keys that are carried over; the caller has dealt with the others.
pub(super) fn read(reader: &mut Reader, node: &Node) -> Resources {
    let value = |key: &str| node.get(key).filter(|node| !node.is_null());
    let (gpu_type, gpus) = match value("accelerators") {
        Some(node) => accelerators(reader, node).unzip(),
        None => (None, None),
    };
    Resources {
        cpus: value("cpus").and_then(|node| cpus(reader, node)),
        memory: value("memory").and_then(|node| memory(reader, node)),
        gpus,
        gpu_type,
    }
}

/// `H100:8`, `H100` or `{H100: 8}`.
fn accelerators(reader: &mut Reader, node: &Node) -> Option<(String, u32)> {
    let path = "resources.accelerators";
    let several = "names alternatives, which cannot be honoured";
    let (kind, count_node, count) = match node.mapping() {
        Some([entry]) if !entry.value.is_null() => {
            let count = reader.text_of(&entry.value, path)?;
            (entry.key.clone(), &entry.value, count)
        }
        Some([entry]) => (entry.key.clone(), node, "1".to_owned()),
        Some(_) => {
            reader.fault(
                node,
                path,
                Refusal::new(several).with_hint("keep one of them"),
            );
            return None;
        }
        None if node.sequence().is_some() => {
            reader.fault(
                node,
                path,
                Refusal::new(several).with_hint("keep one of them"),
            );
            return None;
        }
        None => {
            let text = reader.text_of(node, path)?;
            let (kind, count) = text.split_once(':').unwrap_or((&text, "1"));
            (kind.trim().to_owned(), node, count.trim().to_owned())
        }
    };
    if let Err(refusal) = validate::name(&kind) {
        reader.fault(node, path, refusal);
        return None;
    }
    let (least, most) = keys::GPUS;
    // `8.0` means eight; a part of a GPU cannot be given.
    let whole = count.strip_suffix(".0").unwrap_or(&count);
    let number = whole
        .parse::<u32>()
        .ok()
        .filter(|number| (least..=most).contains(number));
    if number.is_none() {
        let message = format!("expected a whole number of GPUs, found {}", quoted(&count));
        reader.fault(count_node, path, Refusal::new(message));
    }
    number.map(|number| (kind, number))
}

/// `4` or `4+`: at least so many, and asking for exactly these is enough.
fn cpus(reader: &mut Reader, node: &Node) -> Option<u32> {
    let path = "resources.cpus";
    let text = reader.text_of(node, path)?;
    let number = text.trim().trim_end_matches('+');
    let number = number.strip_suffix(".0").unwrap_or(number);
    let (least, most) = keys::CPUS;
    let cpus = number
        .parse::<u32>()
        .ok()
        .filter(|cpus| (least..=most).contains(cpus));
    if cpus.is_none() {
        let message = format!(
            "expected a whole number of CPUs like `4` or `4+`, found {}",
            quoted(&text)
        );
        reader.fault(node, path, Refusal::new(message));
    }
    cpus
}

/// `16`, `16+` or `16GB`: gibibytes where there is no unit, as in SkyPilot.
fn memory(reader: &mut Reader, node: &Node) -> Option<Bytes> {
    let path = "resources.memory";
    let text = reader.text_of(node, path)?;
    let amount = text.trim().trim_end_matches('+').trim_end();
    let unit = amount.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &amount[..amount.len() - unit.len()];
    // SkyPilot counts in powers of two whatever the unit looks like.
    let binary = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "g" | "gb" => format!("{number}GiB"),
        "m" | "mb" => format!("{number}MiB"),
        "t" | "tb" => format!("{number}TiB"),
        _ => amount.to_owned(),
    };
    match binary.parse::<Bytes>() {
        Ok(bytes) => match validate::memory(bytes) {
            Ok(()) => Some(bytes),
            Err(refusal) => {
                reader.fault(node, path, refusal);
                None
            }
        },
        Err(error) => {
            reader.fault(
                node,
                path,
                Refusal::new(format!("{} {error}", quoted(&text))),
            );
            None
        }
    }
}
