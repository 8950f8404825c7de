//! Containers that executors run in: what of the nodes is seen inside, and Slurm's OCI bundles.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use herd_core::plan::Plan;
use herd_slurm::facts::Images;
use herd_slurm::step::Container;
use serde_json::Value;
use thiserror::Error;

use super::record::Image;

/// Most bytes of a bundle's configuration.
const MOST: u64 = 4 << 20;
/// File of a bundle that says how it runs.
const CONFIG: &str = "config.json";

/// The container of a job on a cluster that runs them so.
pub(super) fn of(image: Option<&str>, images: Images) -> Option<Image> {
    let image = image?;
    match images {
        Images::No => None,
        Images::Pyxis => Some(Image::Named(image.to_owned())),
        Images::Bundles => Some(Image::Bundle(PathBuf::from(image))),
    }
}

/// The container of the executors' step, in which the job's home, the program and the working directory are
/// seen under their own names.
pub(super) fn prepare(
    image: &Image,
    plan: &Plan,
    home: &Path,
    program: &Path,
) -> Result<Container, ContainerError> {
    let mounts = mounts(&plan.workdir, home, program);
    Ok(match image {
        Image::Named(name) => Container::Image {
            image: name.clone(),
            mounts,
        },
        Image::Bundle(bundle) => {
            require(bundle, &mounts)?;
            Container::Bundle(bundle.to_string_lossy().into_owned())
        }
    })
}

/// Why a bundle does not do for a job.
#[derive(Debug, Error)]
pub enum ContainerError {
    /// Its configuration cannot be read.
    #[error("could not read {}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It does not show what the job needs.
    #[error(
        "the bundle {} does not mount {missing} at its own place; hint: add {{\"destination\": \
         \"{missing}\", \"source\": \"{missing}\", \"type\": \"bind\", \"options\": [\"rbind\"]}} to the mounts \
         in its config.json",
        bundle.display()
    )]
    NotMounted {
        /// The bundle.
        bundle: PathBuf,
        /// The directory.
        missing: String,
    },
}

/// The directories, without those that lie in others.
fn mounts(workdir: &str, home: &Path, program: &Path) -> Vec<String> {
    let beside = program.parent().unwrap_or(program);
    // The image has a root of its own.
    let is_root = |path: &&Path| *path == Path::new("/");
    let wanted = [home, beside, Path::new(workdir)].into_iter();
    let wanted: Vec<&Path> = wanted.filter(|path| !is_root(path)).collect();
    let mut all: Vec<&Path> = Vec::new();
    for &path in &wanted {
        let inside = |other: &&Path| path.starts_with(other) && *other != path;
        if !wanted.iter().any(inside) && !all.contains(&path) {
            all.push(path);
        }
    }
    all.iter()
        .map(|path| path.to_string_lossy().into_owned())
        .collect()
}

/// Looks whether a bundle mounts these directories: Slurm takes all that is seen in a bundle from its
/// `rootfs` and its configuration, and `srun` has no option for more.
fn require(bundle: &Path, wanted: &[String]) -> Result<(), ContainerError> {
    let path = bundle.join(CONFIG);
    let config = read(&path).map_err(|source| ContainerError::Config {
        path: path.clone(),
        source,
    })?;
    let mounts = config["mounts"].as_array().map_or(&[][..], Vec::as_slice);
    let shows = |directory: &Path| {
        mounts.iter().any(|mount| {
            let at = mount["destination"].as_str().unwrap_or_default();
            mount["source"] == mount["destination"] && !at.is_empty() && directory.starts_with(at)
        })
    };
    match wanted.iter().find(|directory| !shows(Path::new(directory))) {
        None => Ok(()),
        Some(missing) => Err(ContainerError::NotMounted {
            bundle: bundle.to_owned(),
            missing: missing.clone(),
        }),
    }
}

fn read(path: &Path) -> io::Result<Value> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_another_is_mounted_once() {
        let of = |workdir| {
            mounts(
                workdir,
                Path::new("/home/a/herd"),
                Path::new("/opt/herd/herd-node"),
            )
        };
        assert_eq!(of("/home/a/herd/x"), ["/home/a/herd", "/opt/herd"]);
        assert_eq!(of("/home/a"), ["/opt/herd", "/home/a"]);
        assert_eq!(of("/"), ["/home/a/herd", "/opt/herd"]);
    }

    #[test]
    fn a_bundle_shows_what_a_job_needs_or_says_what_not() {
        let bundle = tempfile::tempdir().unwrap();
        let bundle = bundle.path();
        let wanted = ["/home/a/herd".to_owned(), "/opt/herd".to_owned()];
        assert!(matches!(
            require(bundle, &wanted),
            Err(ContainerError::Config { .. })
        ));
        let mounts = |list: &str| {
            fs::write(bundle.join(CONFIG), format!("{{\"mounts\": [{list}]}}")).unwrap();
            require(bundle, &wanted)
        };
        let home = r#"{"destination": "/home", "source": "/home"}"#;
        let error = mounts(home).unwrap_err().to_string();
        assert!(error.contains("does not mount /opt/herd"), "{error}");
        let elsewhere = r#"{"destination": "/opt/herd", "source": "/opt/other"}"#;
        assert!(mounts(&format!("{home}, {elsewhere}")).is_err());
        let both = r#"{"destination": "/opt", "source": "/opt", "options": ["rbind"]}"#;
        mounts(&format!("{home}, {both}")).unwrap();
    }
}
