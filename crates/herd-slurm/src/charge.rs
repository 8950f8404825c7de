//! What a waiting job is charged to: partition, account, QOS and user, as the cluster has filled them in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::accounting::amounts;
use crate::call::Call;
use crate::gres::tres_memory;
use crate::text::{self, fields, given, records};

/// None of them can hold a separator: administrators make them of letters and digits.
const LETTERS: [&str; 5] = ["%P", "%a", "%q", "%u", "%U"];

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
    /// The user's number.
    pub user_number: Option<u32>,
}

impl Charge {
    /// Whether the job may use nodes of this partition.
    pub fn is_in(&self, partition: &str) -> bool {
        self.partition.split(',').any(|name| name == partition)
    }
}

/// Asks what one job wants of each resource, on all its nodes together.
pub fn wanted_call(job: u32) -> Call {
    let job = format!("--jobs={job}");
    let format = format!("tres-alloc:{}", text::RECORD);
    Call::new("squeue", ["-h", "-a", "-O", &format, &job])
}

/// What the first job of the output wants: `cpu`, `gres/gpu`, memory in MiB.
pub fn parse_wanted(output: &str) -> BTreeMap<String, u64> {
    let list = records(output).next().unwrap_or_default();
    let mut wanted = amounts(list);
    if let Some(memory) = tres_memory(list) {
        wanted.insert("mem".to_owned(), memory);
    }
    wanted
}

/// Asks for one job.
pub fn call(job: u32) -> Call {
    let format = text::record_format(&LETTERS);
    let job = format!("--jobs={job}");
    Call::new("squeue", ["-h", "-a", "-o", &format, &job])
}

/// The first job of the output.
pub fn parse(output: &str) -> Option<Charge> {
    let [partition, account, qos, user, number] = fields(records(output).next()?)?;
    Some(Charge {
        partition: given(partition)?.to_owned(),
        account: given(account).map(str::to_owned),
        qos: given(qos).map(str::to_owned),
        user: given(user).map(str::to_owned),
        user_number: text::number(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cluster_keeps_not_is_none() {
        let full = parse("gpu,all\u{1f}lab\u{1f}high\u{1f}ann\u{1f}7\u{1e}\n").unwrap();
        assert!(full.is_in("all") && !full.is_in("al"));
        assert_eq!(full.account.as_deref(), Some("lab"));
        let bare = parse("all\u{1f}(null)\u{1f}\u{1f}ann\u{1f}7\u{1e}\n").unwrap();
        assert_eq!((bare.account, bare.qos), (None, None));
        assert_eq!(parse("all\u{1f}lab"), None);
        let wanted = parse_wanted("cpu=2,mem=3G,node=2,gres/gpu=4\u{1e}\n");
        assert_eq!((wanted["mem"], wanted["gres/gpu"]), (3072, 4));
        assert!(parse_wanted("").is_empty());
    }
}
