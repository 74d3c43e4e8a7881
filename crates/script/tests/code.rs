//! Tests of detecting whether the source code of an application has changed.

mod support;

use support::Folder;
use veche_script::SourceCode;
use veche_types::WorkerId;

/// Makes one handler of the script require a module.
fn require(code: &std::sync::Arc<SourceCode>, module: &str) {
    let app = veche_script::ScriptApp {
        name: "test".into(),
        options: serde_json::Value::Null,
        has_files: false,
        databases: std::sync::Arc::default(),
        limits: support::limits(),
        role: veche_script::AppRole::Clients,
    };
    let world = veche_script::AppWorld::default();
    let mut vm = veche_script::Vm::new(&app, code, &world, WorkerId(0)).expect("a VM");
    let request = support::request("GET", &format!("/{module}"), "");
    vm.turn(veche_script::Now::default());
    vm.request(support::ANN, request, veche_script::Now::default());
}

#[test]
fn what_a_handler_has_asked_for_late_is_no_change() {
    let folder = Folder::new();
    let script = folder.write(
        "app.lua",
        "return { request = function(req) return require(req.path:sub(2)) end }",
    );
    folder.write("late.lua", "return 'late'");
    folder.write("later.lua", "return 'later'");
    let read = || std::sync::Arc::new(SourceCode::read(&script).expect("the script"));
    let (old, new) = (read(), read());
    require(&old, "late");
    assert_eq!((old.files().len(), new.files().len()), (2, 1));
    assert!(old.is_same(&new));

    require(&old, "later");
    folder.write("later.lua", "return 'other'");
    assert!(!old.is_same(&read()));
    folder.write("later.lua", "return 'later'");
    assert!(old.is_same(&read()));
    std::fs::remove_file(folder.0.join("late.lua")).expect("it is there");
    assert!(!old.is_same(&read()));
}
