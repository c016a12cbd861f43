//! What becomes of a workspace when an attempt has ended: what it changed is written down, and what was done in a tree
//! of its own goes home.

use std::path::Path;

use skein_core::engine::{AttemptEnd, Finding, Report, Role};

use super::{
    Turn, diff, locked,
    merge::Merge,
    own::{self, OwnTree},
    place::{Place, Visit, number},
    settle,
    shadow::Shadow,
    take::Taken,
    whole,
};
use crate::{
    crew::{attempt::never, job::Job},
    workspace::{AttemptDir, Root},
};

impl Place {
    /// It has ended. What its end is, with what becomes of its changes.
    pub fn end(&mut self, visit: Visit<'_>, files: &AttemptDir, report: Report) -> Report {
        if self.view.is_none() && self.watched.is_none() && self.unknown.is_none() {
            return report;
        }
        let turn = visit.shared.trees.turn(&visit.job.run);
        let mut turn = locked(&turn);
        let after = self.look(visit, files, &mut turn);
        let taken = after.as_ref().ok().and_then(|after| after.clone());
        let report = self.finish(visit, after, report);
        // It is for people; the work stands without it.
        let _ = self.tell_run_changes(visit, taken.as_ref());
        report
    }

    /// Brings home what was done in a tree of its own, if the work is complete.
    fn finish(&mut self, visit: Visit<'_>, after: Result<Option<Taken>, String>, report: Report) -> Report {
        if !completes(visit.job, &report) {
            return report;
        }
        let brought = match after {
            _ if self.own.is_none() => Ok(()),
            Ok(Some(after)) => self.bring_home(visit, &after, &report),
            Ok(None) => Ok(()),
            Err(why) => Err(unmerged(&why)),
        };
        match brought.and_then(|()| settle::settled(visit)) {
            Ok(()) => report,
            Err(end) => Report { end, ..report },
        }
    }

    /// Writes down what changed. None: that is not looked at.
    fn look(
        &mut self,
        visit: Visit<'_>,
        files: &AttemptDir,
        turn: &mut Turn,
    ) -> Result<Option<Taken>, String> {
        let after = self.changed(visit, files);
        if let Err(why) = &after {
            // It is for people; the work stands without it.
            let _ = diff::write_unknown(files, why);
        }
        if let (Ok(Some(after)), true) = (&after, visit.job.context.is_some()) {
            // The context folder lists them; the work stands without the list.
            self.changed = self.changed_paths(visit, after).unwrap_or_default();
        }
        if let Some(watched) = &mut self.watched {
            watched.ended = number(turn, visit.run).ok();
            watched.after =
                after.as_ref().ok().and_then(|after| after.as_ref().map(|after| after.tree.clone()));
            watched.write(files, false).map_err(|error| error.to_string())?;
        }
        after
    }

    /// The paths that differ from what the attempt found, from its workspace.
    fn changed_paths(&self, visit: Visit<'_>, after: &Taken) -> Result<Vec<String>, String> {
        let before = self.watched.as_ref().and_then(|watched| watched.before.as_ref());
        let (Some(view), Some(before)) = (&self.view, before) else { return Ok(Vec::new()) };
        let changes = self.shadow(visit)?.changes(before, &after.tree)?;
        let within =
            |path: &Path| path.strip_prefix(&view.prefix).unwrap_or(path).to_string_lossy().into_owned();
        Ok(changes.iter().map(|change| within(&change.path)).collect())
    }

    fn changed(&self, visit: Visit<'_>, files: &AttemptDir) -> Result<Option<Taken>, String> {
        if let Some(why) = &self.unknown {
            return Err(why.clone());
        }
        let before = self.watched.as_ref().and_then(|watched| watched.before.as_ref());
        let (Some(view), Some(before)) = (&self.view, before) else { return Ok(None) };
        let shadow = self.shadow(visit)?;
        let after = shadow.take(view)?;
        shadow.write_changes(files, before, &after)?;
        Ok(Some(after))
    }

    /// What was done in a tree of its own goes into the workspace, unless it is to stay. The end of the attempt, if that
    /// cannot be.
    fn bring_home(&mut self, visit: Visit<'_>, after: &Taken, report: &Report) -> Result<(), AttemptEnd> {
        let shadow = self.shadow(visit).map_err(|why| unmerged(&why))?;
        let Some(own) = &mut self.own else { return Ok(()) };
        let changes = shadow.changes(&own.note.commit, &after.tree).map_err(|why| unmerged(&why))?;
        if changes.is_empty() {
            own.note.done = true;
            return own.save().and_then(|()| own.remove()).map_err(|why| unmerged(&why));
        }
        if visit.job.keeping.apart {
            return Ok(());
        }
        let told = visit.shared.without_secrets(report.clone());
        merge(visit, &shadow).merge(own, &after.tree, visit.job.attempt, told)
    }
}

fn merge<'a>(visit: Visit<'a>, shadow: &'a Shadow<'a>) -> Merge<'a> {
    Merge { shadow, run: visit.run, whole: whole(shadow) }
}

fn unmerged(why: &str) -> AttemptEnd {
    never(format!("what it changed cannot be merged: {why}"))
}

/// Whether the work of the step is complete with this end.
fn completes(job: &Job, report: &Report) -> bool {
    match (job.attempt.role, &report.end) {
        (Role::Main, AttemptEnd::Succeeded { output }) => {
            let mut output = (**output).clone();
            job.outputs.complete(&mut output);
            let proven = report.proofs.iter().all(|proof| proof.holds);
            proven && !job.keeping.checked && (job.outputs.is_empty() || job.outputs.check(&output).is_ok())
        }
        (
            Role::Check,
            AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { finding: Finding::Complete, .. },
        ) => true,
        _ => false,
    }
}

/// What an attempt comes to whose work was done before, by one that died while its changes were merged: the merge is
/// carried out, and nothing is worked on again.
pub(in crate::crew) fn finished(
    visit: Visit<'_>,
    base: &Root,
    context: Option<&std::path::Path>,
) -> Result<Option<Report>, AttemptEnd> {
    let Visit { shared, job, run, mark } = visit;
    if !job.isolation.worktree {
        return Ok(None);
    }
    let Some(note) = own::note(run, job.attempt).map_err(never)? else { return Ok(None) };
    let of = |merging: &own::Merging| merging.attempt.role == job.attempt.role;
    let Some(merging) = note.merging.filter(of) else { return Ok(None) };
    let turn = shared.trees.turn(&job.run);
    let _one = locked(&turn);
    if !note.done {
        let shadow = Shadow::open(run, base, mark, &visit.without(context)).map_err(|why| unmerged(&why))?;
        let own = OwnTree::open(&shadow, run, job.attempt, &job.path);
        merge(visit, &shadow).carry_out(&mut own.map_err(|why| unmerged(&why))?)?;
    }
    settle::settled(visit)?;
    if job.attempt.role == Role::Main {
        run.pass_artifacts(merging.attempt, job.attempt).map_err(never)?;
    }
    Ok(Some(merging.report))
}
