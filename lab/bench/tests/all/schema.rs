//! Tests the schema of the JSON that scripts read.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use vfscale_bench::{Interrupt, Pace, Plan, TargetSpec, find, run};

/// Returns the fields of an object and the kinds of their values.
fn shape(value: &Value) -> BTreeMap<&str, &'static str> {
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    value.as_object().unwrap().iter().map(|(key, value)| (key.as_str(), kind(value))).collect()
}

fn expected<'a>(kind: &'static str, fields: &[&'a str]) -> Vec<(&'a str, &'static str)> {
    fields.iter().map(|field| (*field, kind)).collect()
}

fn assert_shape(value: &Value, expectations: &[Vec<(&str, &'static str)>]) {
    let expectations: BTreeMap<_, _> = expectations.iter().flatten().copied().collect();
    assert_eq!(shape(value), expectations);
}

#[test]
fn the_fields_of_the_schema_and_their_kinds() {
    let dir = tempfile::tempdir().unwrap();
    let targets = vec![TargetSpec::Path(dir.path().to_owned()), TargetSpec::Memory];
    let mut plan = Plan::new(vec![find("stat-deep").unwrap()], targets);
    plan.slice = Duration::from_millis(1);
    plan.warm_up = Duration::from_millis(1);
    plan.before = vec![vec!["lockref".into()]];
    plan.latency = Some(Pace::Closed);
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["schema"], "vfscale-bench/1");
    assert_shape(
        &json,
        &[
            expected("string", &["schema", "command"]),
            expected("number", &["started", "seconds"]),
            expected("bool", &["interrupted"]),
            expected("array", &["results", "ratios", "failures", "skipped", "counts"]),
        ],
    );
    let result = &json["results"][0];
    assert_shape(
        result,
        &[
            expected("string", &["workload", "target", "seed", "unit", "kernel", "commit"]),
            expected("string", &["mount_options"]),
            expected("number", &["threads", "disagreement", "rounds_disturbed", "random_seed"]),
            expected("array", &["before", "rounds"]),
            expected("object", &["ops_per_s", "cpu", "latency_ns", "machine", "mount"]),
            expected("bool", &["verified", "processes", "pinned", "own_cwd"]),
            expected("null", &["seed_rate", "over_time", "cpus_pretended", "users"]),
            expected("null", &["journal", "lockstat", "lockstat_round", "readers"]),
        ],
    );
    assert_shape(&result["ops_per_s"], &[expected("number", &["median", "min", "max"])]);
    assert_shape(
        &result["cpu"],
        &[expected("number", &["min", "median", "used", "system", "stolen_max"])],
    );
    assert_shape(
        &result["latency_ns"],
        &[
            expected("null", &["rate"]),
            expected("number", &["count", "p50", "p90", "p99", "p999", "max"]),
        ],
    );
    assert_shape(&result["mount"], &[expected("string", &["fs_type", "source", "at", "options"])]);
    let before = json["results"].as_array().unwrap().iter();
    assert!(before.clone().any(|r| r["before"] == serde_json::json!(["lockref"])));
    let ratio = json["ratios"].as_array().unwrap().iter().find(|r| r["compared"] == "patches");
    assert_shape(
        ratio.unwrap(),
        &[
            expected("string", &["compared", "verdict"]),
            expected("object", &["of", "over"]),
            expected("number", &["median", "low", "high", "disagreement"]),
        ],
    );
}

#[test]
fn the_fields_of_volumes() {
    let dir = tempfile::tempdir().unwrap();
    let image = TargetSpec::Volume(dir.path().join("image.vfs"));
    let mut plan = Plan::new(vec![find("create-many-sync").unwrap()], vec![image]);
    plan.warm_up = Duration::from_millis(1);
    plan.files = 200;
    plan.lockstat = true;
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    let result = &json["results"][0];
    let journal = &result["journal"];
    assert_shape(
        journal,
        &[
            expected("object", &["transactions_per_s"]),
            expected("number", &["transactions_per_op", "waited_per_1000"]),
            expected("array", &["checkpoints"]),
        ],
    );
    let checkpoint = ["sequence", "items", "reserved", "used", "returned"];
    let checkpoints = journal["checkpoints"].as_array().unwrap();
    assert!(checkpoints.len() >= plan.rounds, "each round ends with a sync");
    for one in checkpoints {
        assert_shape(one, &[expected("number", &checkpoint)]);
        let bytes = ["reserved", "used", "returned"].map(|name| one[name].as_u64().unwrap());
        assert_eq!(bytes[0], bytes[1] + bytes[2]);
    }
    let round = &result["lockstat_round"];
    assert_shape(round, &[expected("number", &["operations", "waiting"])]);
    assert_eq!(round["operations"], 200);
    let lock = &result["lockstat"][0];
    assert_shape(
        lock,
        &[
            expected("string", &["class"]),
            expected("number", &["con_bounces", "contentions", "acq_bounces", "acquisitions"]),
            expected("object", &["wait_us", "hold_us"]),
        ],
    );
    assert_shape(&lock["hold_us"], &[expected("number", &["min", "max", "total", "avg"])]);
}
