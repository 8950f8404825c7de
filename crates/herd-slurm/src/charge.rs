//! What a waiting job is charged to: partition, account, QOS and user, as the cluster has filled them in.

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::text::{self, fields, given, records};

/// None of them can hold a separator: administrators make them of letters and digits.
const LETTERS: [&str; 4] = ["%P", "%a", "%q", "%u"];

/// Where a job stands in the accounts of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// Partition, or several with commas.
    pub partition: String,
    /// Account; none where the cluster keeps none.
    pub account: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// User.
    pub user: Option<String>,
}

impl Charge {
    /// Whether the job may use nodes of this partition.
    pub fn is_in(&self, partition: &str) -> bool {
        self.partition.split(',').any(|name| name == partition)
    }
}

/// Asks for one job.
pub fn call(job: u32) -> Call {
    let format = text::record_format(&LETTERS);
    let job = format!("--jobs={job}");
    Call::new("squeue", ["-h", "-a", "-o", &format, &job])
}

/// The first job of the output.
pub fn parse(output: &str) -> Option<Charge> {
    let [partition, account, qos, user] = fields(records(output).next()?)?;
    Some(Charge {
        partition: given(partition)?.to_owned(),
        account: given(account).map(str::to_owned),
        qos: given(qos).map(str::to_owned),
        user: given(user).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cluster_keeps_not_is_none() {
        let full = parse("gpu,all\u{1f}lab\u{1f}high\u{1f}ann\u{1e}\n").unwrap();
        assert!(full.is_in("all") && !full.is_in("al"));
        assert_eq!(full.account.as_deref(), Some("lab"));
        let bare = parse("all\u{1f}(null)\u{1f}\u{1f}ann\u{1e}\n").unwrap();
        assert_eq!((bare.account, bare.qos), (None, None));
        assert_eq!(parse("all\u{1f}lab"), None);
    }
}
