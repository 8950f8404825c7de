//! The jobs that others come after, by Slurm's numbers.

use herd_backends::slurm::record::Record;
use herd_core::plan::Plan;
use herd_core::spec::AfterWhen;
use herd_jobdir::Home;
use herd_slurm::script::Dependency;

use crate::error::{ExpectedError, Fault};
use crate::jobs;

/// Slurm's numbers of the jobs that must end first. One that has ended as it must is left out.
pub(super) fn dependencies(home: &Home, plan: &Plan) -> Result<Vec<Dependency>, ExpectedError> {
    let mut all = Vec::new();
    let mut faults = Vec::new();
    for (index, after) in plan.after.iter().enumerate() {
        let job = jobs::open(home, &after.job)?;
        let fault = |text: String| Fault::of(format!("after[{index}]"), text);
        let result = job.dir.read_result();
        if let Some(ended) = result.map_err(|error| ExpectedError::failed("read the job", error))? {
            if !after.when.is_met_by(ended.state) {
                let code = ended.exit_code;
                faults.push(fault(format!("{} has ended with code {code}", job.short())));
            }
            continue;
        }
        match Record::read(&job.dir) {
            Ok(Some(record)) if record.parts.len() > 1 && after.when == AfterWhen::Failed => {
                let text = format!("{} is several arrays of Slurm", job.short());
                faults.push(fault(text).hint(
                    "Slurm waits for the failure of one of them alone; `when: any` waits for the end",
                ));
            }
            Ok(Some(record)) => {
                let depend = |job| Dependency {
                    job,
                    when: after.when,
                };
                all.extend(record.numbers().into_iter().map(depend));
            }
            Ok(None) => faults.push(
                fault(format!("{} does not run on Slurm", job.short()))
                    .hint("only jobs of the same cluster can come first there"),
            ),
            Err(error) => return Err(ExpectedError::failed("read the job", error)),
        }
    }
    if faults.is_empty() {
        Ok(all)
    } else {
        Err(ExpectedError::Faults { file: None, faults })
    }
}
