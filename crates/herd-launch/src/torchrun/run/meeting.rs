//! From the command line to the settings of the rendezvous.

use std::path::Path;
use std::sync::Arc;

use herd_link::{Key, LinkError};

use super::LaunchError;
use super::say::say;
use crate::rendezvous::{Backend, Endpoint, Settings, Timeouts, read_key};
use crate::torchrun::flags::{Flags, Rendezvous};

/// What this node brings to the rendezvous.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own<'a> {
    /// Workers on it.
    pub(super) workers: u32,
    /// Whether they can use a store of the launcher's.
    pub(super) has_store: bool,
    /// The text of `HERD_RDZV_KEY`.
    pub(super) secret: Option<&'a str>,
}

/// The settings of the rendezvous that the flags ask for.
pub(super) fn settings(flags: &Flags, own: Own<'_>) -> Result<Settings, LaunchError> {
    let (backend, endpoint, node_rank) = match flags.rendezvous()? {
        Rendezvous::Standalone => (Backend::Standalone, None, 0),
        Rendezvous::Static {
            host,
            port,
            node_rank,
        } => (Backend::Static, Some((host, port)), node_rank),
        Rendezvous::C10d { host, port } => (Backend::C10d, Some((host, port)), 0),
    };
    let mut settings = Settings::new(own.workers);
    settings.backend = backend;
    settings.has_store = own.has_store;
    settings.role.clone_from(&flags.role);
    settings.local_addr.clone_from(&flags.local_addr);
    settings.on_notice = Arc::new(|notice| {
        let kind = if notice.is_warning() { "warning: " } else { "" };
        say(&format!("{kind}{notice}"));
    });
    settings.timeouts = Timeouts::from_conf(backend, flags.rdzv_conf.entries())?;
    let Some((host, port)) = endpoint else {
        settings.id = random_id().map_err(LaunchError::Random)?;
        return Ok(settings);
    };
    settings.endpoint = Endpoint {
        host,
        port: Some(port),
    };
    settings.id.clone_from(&flags.rdzv_id);
    settings.min_nodes = flags.nnodes.min;
    settings.max_nodes = flags.nnodes.max;
    if backend == Backend::Static {
        // torchrun, too, waits for the greatest number where nodes are numbered.
        settings.min_nodes = flags.nnodes.max;
    }
    settings.node_rank = node_rank;
    settings.is_host = flags.rdzv_conf.flag("is_host")?;
    settings.key = read_key(own.secret, flags.rdzv_conf.get("key_file").map(Path::new))?;
    Ok(settings)
}

/// An id that no other run has, in the form of a random UUID.
fn random_id() -> Result<String, LinkError> {
    let digits = Key::generate()?.to_hex();
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    let [first, second, third, fourth, last] =
        [(0, 8), (8, 12), (13, 16), (17, 20), (20, 32)].map(|(from, to)| part(from, to));
    // The digits that say "random".
    Ok(format!("{first}-{second}-4{third}-8{fourth}-{last}"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use super::*;
    use crate::torchrun::flags::{Command, parse};

    fn settings_of(arguments: &[&str]) -> Result<Settings, LaunchError> {
        let arguments = arguments.iter().chain(&["t.py"]).map(OsString::from);
        let arguments: Vec<_> = arguments.collect();
        let Command::Launch(flags) = parse(&arguments, &|_| None).unwrap() else {
            panic!("no launch");
        };
        let own = Own {
            workers: 2,
            has_store: true,
            secret: None,
        };
        settings(&flags, own)
    }

    #[test]
    fn one_node_that_names_no_place_is_alone_under_an_id_of_its_own() {
        for flags in [&[][..], &["--standalone", "--rdzv-id=x"], &["--rdzv-id=x"]] {
            let first = settings_of(flags).unwrap();
            let second = settings_of(flags).unwrap();
            assert_eq!(first.backend, Backend::Standalone);
            assert_ne!(first.id, second.id);
            assert_eq!(first.id.len(), 36, "{}", first.id);
        }
    }

    #[test]
    fn static_and_c10d_have_torchruns_places_and_numbers() {
        let fixed = settings_of(&["--nnodes=1:3", "--node-rank=2", "--master-addr=h0"]).unwrap();
        assert_eq!(fixed.backend, Backend::Static);
        assert_eq!(fixed.endpoint.to_string(), "h0:29500");
        let nodes = (fixed.min_nodes, fixed.max_nodes, fixed.node_rank);
        assert_eq!(nodes, (3, 3, 2));
        assert_eq!(fixed.timeouts.join, Duration::from_mins(15));
        let c10d = settings_of(&[
            "--nnodes=1:3",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=[fd00::1]",
            "--rdzv-id=job",
            "--rdzv-conf=join_timeout=7,is_host=0,other=x",
        ])
        .unwrap();
        assert_eq!(c10d.endpoint.to_string(), "[fd00::1]:29400");
        assert_eq!((c10d.min_nodes, c10d.max_nodes), (1, 3));
        assert_eq!((c10d.id.as_str(), c10d.is_host), ("job", Some(false)));
        assert_eq!(c10d.timeouts.join, Duration::from_secs(7));
    }

    #[test]
    fn settings_that_cannot_be_used_are_errors() {
        for conf in [
            "join_timeout=soon",
            "is_host=perhaps",
            "key_file=/nonexistent/key",
        ] {
            let conf = format!("--rdzv-conf={conf}");
            let flags = ["--rdzv-backend=c10d", "--nnodes=2", conf.as_str()];
            settings_of(&flags).unwrap_err();
        }
    }
}
