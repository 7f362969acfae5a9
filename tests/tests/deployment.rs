//! The files of `packaging/` that are no part of the program: unit, dashboard, alert rules, containers.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nprof_tests::exposition::Exposition;
use nprof_tests::nprof::run;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{traced_on_every_jdk, with_prometheus};
use nprof_tests::serve::Serve;
use saphyr::{LoadableYamlNode as _, Yaml};
use serde_json::Value;

/// What nprof needs, without the prefix `CAP_`. The privileges that it keeps are checked by its own tests.
const CAPABILITIES: [&str; 5] = ["BPF", "PERFMON", "SYS_PTRACE", "CHECKPOINT_RESTORE", "DAC_READ_SEARCH"];

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(path(file)).with_context(|| file.to_owned())
}

fn dashboard() -> Result<Value> {
    Ok(serde_json::from_str(&read("packaging/grafana/nprof.json")?)?)
}

fn capabilities() -> BTreeSet<String> {
    CAPABILITIES.map(str::to_owned).into()
}

/// All strings below the keys `expr`.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "expr" => found.push(text.clone()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// Check that the unit, the DaemonSet, the Dockerfile's words and the documentation name the same capabilities.
#[test]
fn the_same_capabilities_everywhere() -> Result<()> {
    let unit = read("packaging/systemd/nprof.service")?;
    for setting in ["AmbientCapabilities=", "CapabilityBoundingSet="] {
        let names = unit.lines().find_map(|line| line.strip_prefix(setting)).context(setting)?;
        let names: BTreeSet<String> = names.split(' ').map(|name| name.replacen("CAP_", "", 1)).collect();
        ensure!(names == capabilities(), "{setting}{names:?}");
    }
    let text = read("packaging/kubernetes/daemonset.yaml")?;
    let documents = Yaml::load_from_str(&text)?;
    let set = documents.iter().find(|it| it["kind"].as_str() == Some("DaemonSet")).context("no DaemonSet")?;
    let security = &set["spec"]["template"]["spec"]["containers"][0]["securityContext"];
    let added = security["capabilities"]["add"].as_sequence().context("no capabilities")?;
    let added: BTreeSet<String> = added.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect();
    ensure!(added == capabilities(), "{added:?}");
    ensure!(security["privileged"].as_bool() == Some(false), "privileged");
    let dockerfile = read("packaging/docker/Dockerfile")?;
    let options = dockerfile.split_whitespace().filter_map(|word| word.strip_prefix("--cap-add="));
    ensure!(options.map(str::to_owned).collect::<BTreeSet<_>>() == capabilities(), "{dockerfile}");
    let permissions = read("docs/permissions.md")?;
    for name in CAPABILITIES {
        ensure!(permissions.contains(&format!("| `CAP_{name}` |")), "docs/permissions.md has no row for {name}");
    }
    Ok(())
}

/// Check that every document for Kubernetes is one, in the same namespace.
#[test]
fn kubernetes_documents_are_complete() -> Result<()> {
    for file in ["packaging/kubernetes/daemonset.yaml", "packaging/kubernetes/podmonitor.yaml"] {
        let text = read(file)?;
        for document in Yaml::load_from_str(&text).with_context(|| file.to_owned())? {
            let kind = document["kind"].as_str().with_context(|| format!("{file}: no kind"))?;
            ensure!(document["apiVersion"].as_str().is_some(), "{file}: {kind} without apiVersion");
            let metadata = &document["metadata"];
            ensure!(metadata["name"].as_str() == Some("nprof"), "{file}: {kind}");
            let namespace = metadata.as_mapping_get("namespace").and_then(|it| it.as_str());
            ensure!(namespace == Some("nprof") || kind == "Namespace", "{file}: {kind} is in {namespace:?}");
        }
    }
    Ok(())
}

/// Check that the Dockerfile copies nothing that is not there, and all crates of the workspace. (Building it takes images
/// from a registry.)
#[test]
fn dockerfile_copies_what_is_there() -> Result<()> {
    let dockerfile = read("packaging/docker/Dockerfile")?;
    let copies = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY "));
    let copies = copies.filter(|words| !words.starts_with("--from"));
    let sources: BTreeSet<&str> =
        copies.flat_map(|words| words.rsplit_once(' ').map_or("", |(sources, _)| sources).split(' ')).collect();
    for source in &sources {
        ensure!(path(source).exists(), "{source} is not there");
    }
    let workspace = read("Cargo.toml")?;
    let members = workspace.lines().find_map(|line| line.strip_prefix("members = ")).context("no members")?;
    for member in serde_json::from_str::<Vec<String>>(members)? {
        ensure!(sources.contains(member.as_str()), "{member} is not copied");
    }
    Ok(())
}

/// Check that the panels have their own ids, lie beside each other, and say what they show.
#[test]
fn dashboard_panels_are_in_order() -> Result<()> {
    let dashboard = dashboard()?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().context("a panel without a title")?;
        ensure!(ids.insert(panel["id"].as_u64().context("a panel without an id")?), "{title}: its id is taken");
        ensure!(panel["type"] == "row" || panel["description"].as_str().is_some_and(|it| !it.is_empty()), "{title}");
        let place = |key: &str| panel["gridPos"][key].as_u64().context("a panel without a place");
        for x in place("x")?..place("x")? + place("w")? {
            ensure!(x < 24, "{title} is beyond the edge");
            for y in place("y")?..place("y")? + place("h")? {
                ensure!(taken.insert((x, y)), "{title} lies on another panel");
            }
        }
    }
    Ok(())
}

/// Check that Prometheus understands every query of the dashboard, with its variables filled in.
#[test]
fn dashboard_queries_are_understood() -> Result<()> {
    let mut queries = Vec::new();
    expressions(&dashboard()?, &mut queries);
    ensure!(queries.len() > 15, "{queries:?}");
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (number, query) in queries.iter().enumerate() {
        let mut query = query.replace("$__rate_interval", "5m").replace("$__range", "1h");
        for variable in ["$instance", "$jvm", "$method"] {
            query = query.replace(variable, ".*");
        }
        ensure!(!query.contains('$'), "unknown variable: {query}");
        rules += &format!("  - record: dashboard:query:{number}\n    expr: {}\n", Value::from(query));
    }
    with_prometheus(|| {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("rules.yml");
        fs::write(&file, &rules)?;
        promtool(Command::new("promtool").args(["check", "rules"]).arg(file))
    })
}

/// The metrics that a text names.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.filter(|word| word.starts_with("nprof_") || word.starts_with("process_")).collect()
}

/// The metrics that the dashboard and the rules are made from. Those of a histogram are named as it is.
fn used_metrics() -> Result<BTreeSet<String>> {
    let mut texts = Vec::new();
    expressions(&dashboard()?, &mut texts);
    for file in ["nprof.rules.yml", "nprof.rules.test.yml"] {
        texts.push(read(&format!("packaging/prometheus/{file}"))?);
    }
    let family = |name: &str| {
        let end = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        end.unwrap_or(name).to_owned()
    };
    Ok(texts.iter().flat_map(|text| metrics(text)).map(family).collect())
}

/// Check that the dashboard and the rules use no metric that the documentation does not know.
#[test]
fn metrics_are_documented() -> Result<()> {
    let used = used_metrics()?;
    ensure!(used.len() > 10, "{used:?}");
    let documented = read("docs/metrics.md")?;
    for metric in used {
        ensure!(documented.contains(&format!("| `{metric}` |")), "docs/metrics.md has no row for {metric}");
    }
    Ok(())
}

/// Check that a service whose methods are counted, demoted and hidden sends every metric that the dashboard and the rules
/// use.
#[test]
fn metrics_are_sent() -> Result<()> {
    let used = used_metrics()?;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let mut asking = RemoteProcess::asking(jdk, &[])?;
        // So little that everything is soon detached.
        let options = ["--max-overhead", "0.001%", "--max-series", "5", "--jni-for", "targets.Asking", crate::TARGETS];
        let serve = Serve::start(&options)?;
        target.calls("all", 1, 10)?;
        serve.ctl_succeeds(&["mode", "count", "*"])?;
        let is_missing = |samples: &Exposition| used.iter().find(|&name| !samples.types.contains_key(name)).cloned();
        let mut missing = None;
        let sent = serve.scrape_until("every metric", |samples| {
            target.calls("all", 1, 10)?;
            asking.run("ask throw 1 1 2")?;
            missing = is_missing(samples);
            Ok(missing.is_none())
        });
        sent.map(drop).with_context(|| format!("{missing:?} is not sent"))
    })
}

/// Check that the configuration of the package is accepted. Its group is made by the package and need not be here.
#[test]
fn packaged_configuration_is_accepted() -> Result<()> {
    let file = path("packaging/nprof.toml");
    let file = file.to_str().context("a path in UTF-8")?;
    let checked = run(&["serve", "--check-config", "--config", file, "--control-group", "root"])?;
    ensure!(checked.code == Some(0), "{checked:?}");
    Ok(())
}

/// Check that the alert rules are understood and fire when they should, and that each says what to do.
#[test]
fn alert_rules_fire_when_they_should() -> Result<()> {
    let text = read("packaging/prometheus/nprof.rules.yml")?;
    let documents = Yaml::load_from_str(&text)?;
    let groups = documents[0]["groups"].as_sequence().context("no groups")?;
    for rule in groups.iter().filter_map(|group| group["rules"].as_sequence()).flatten() {
        let alert = rule["alert"].as_str().context("a rule that is no alert")?;
        for annotation in ["summary", "description"] {
            ensure!(rule["annotations"][annotation].as_str().is_some_and(|it| !it.is_empty()), "{alert}: {annotation}");
        }
        ensure!(rule["labels"]["severity"].as_str().is_some(), "{alert}: no severity");
    }
    with_prometheus(|| {
        let directory = path("packaging/prometheus");
        promtool(Command::new("promtool").args(["check", "rules", "nprof.rules.yml"]).current_dir(&directory))?;
        promtool(Command::new("promtool").args(["test", "rules", "nprof.rules.test.yml"]).current_dir(&directory))
    })
}

fn promtool(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&said));
    Ok(())
}
