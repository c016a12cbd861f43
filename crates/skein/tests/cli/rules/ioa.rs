//! Rules of IOA.

use crate::kept::Project;

/// Books a train and a room; then a step fails, or nobody decides. `shut` prevents the cancellation of the train.
fn trip(last: &str) -> Project {
    let project = Project::new();
    let script = "asked=$(cat); case \"$asked\" in *Charge*) exit 1;; *ticket*) [ ! -e shut ] || exit 1;; esac; \
                  case \"$asked\" in *Cancel*) echo \"$SKEIN_STEP\" >> undone;; esac";
    let agent = format!("[agents.booker]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n");
    project.folder.write("skein.toml", agent).write(
        "trip.yaml",
        format!(
            "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: trip}}\nspec:\n  description: Books a trip.\n  \
             domainsInvolved: [travel]\n  timeout: 2m\n  failurePolicy: compensate\n  steps:\n    \
             - {{name: train, agent: booker, action: Book the train., timeout: 30s}}\n    \
             - {{name: room, agent: booker, action: Book a room., dependsOn: [train], timeout: 30s}}\n    \
             - {{name: last, agent: booker, {last}, dependsOn: [room]}}\n  compensation:\n    \
             - {{step: room, action: Cancel the room., agent: booker}}\n    \
             - {{step: train, action: Cancel the ticket., agent: booker}}\n"
        ),
    );
    project
}

#[test]
fn a_run_that_was_undone_has_the_condition_rolled_back() {
    let project = trip("action: Charge the card., timeout: 30s");
    let result = project.json("run trip.yaml", 4);
    assert_eq!(result["native_status"], "completed");
    let condition = &result["conditions"][0];
    assert_eq!((condition["type"].as_str(), condition["status"].as_str()), (Some("RolledBack"), Some("True")));
    assert_eq!(condition["message"], "undone: train, room");
    assert_eq!(condition["lastTransitionTime"], result["finished_at"]);
    let run = result["run_id"].as_str().unwrap();
    let said = project.ends(&format!("runs {run}"), 0);
    assert!(said.contains("RolledBack: undone: train, room"), "{said}");
    // The output uses the terms of the format.
    assert!(said.contains("1 failed, 2 completed") && said.contains("Completed in "), "{said}");
    let why = result["steps"][0]["why"]["text"].as_str().unwrap();
    assert!(why.contains("`last` failed and the workflow compensates"), "{why}");
}

#[test]
fn a_run_that_was_undone_in_part_has_the_condition_partial_rollback() {
    let project = trip("action: Charge the card., timeout: 30s");
    project.folder.write("shut", "");
    let result = project.json("run trip.yaml", 4);
    assert_eq!(result["native_status"], "failed");
    assert_eq!(result["conditions"][0]["type"], "PartialRollback");
    assert_eq!(result["conditions"][0]["message"], "undone: room; not undone: train");
    let run = result["run_id"].as_str().unwrap();
    let said = project.ends(&format!("runs {run}"), 0);
    assert!(said.contains("PartialRollback: undone: room; not undone: train"), "{said}");
}

/// Regardless of the step's own settings, the workflow defines what happens when nobody decides.
#[test]
fn a_gate_that_times_out_under_compensate_undoes() {
    for more in ["", ", onFailure: abort"] {
        let project = trip(&format!("action: \"GATE: Pay?\", timeout: 1s{more}"));
        let result = project.json("run trip.yaml", 4);
        assert_eq!(result["status"], "undone", "{result}");
        assert_eq!(project.read("undone"), "room\ntrain\n");
        assert_eq!(result["conditions"][0]["type"], "RolledBack");
    }
}

#[test]
fn a_run_without_conditions_has_none() {
    let project = trip("action: Pay., timeout: 30s");
    assert!(project.json("run trip.yaml", 0).get("conditions").is_none());
}
