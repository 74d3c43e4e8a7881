//! Tests of the data that the VMs of several workers share.

mod support;

use std::sync::Arc;
use std::thread;

use support::{Folder, limits};

use veche_script::{AppWorld, Now, ScriptApp, SourceCode, Vm};
use veche_store::{Store, Value};
use veche_types::WorkerId;

#[test]
fn workers_share_dicts_and_counters() {
    let folder = Folder::new();
    let path = folder.write(
        "app.lua",
        "local veche = require 'veche'
        local app = {}
        function app.start()
          local dict, counter = veche.dict('shared'), veche.counter('shared')
          for i = 1, 2000 do
            counter:add(1)
            dict:incr('sum', 1)
            dict:update('product', function(value) return (value or 0) + 2 end)
            if dict:add('once ' .. i, veche.worker) then dict:incr('added') end
            if i % 100 == 0 then veche.sleep(0) end
          end
        end
        return app",
    );
    let store = Arc::new(Store::default());
    let code = Arc::new(SourceCode::read(&path).expect("the script"));
    thread::scope(|scope| {
        for worker in 0..4 {
            let (store, code) = (Arc::clone(&store), Arc::clone(&code));
            scope.spawn(move || {
                let app = ScriptApp {
                    name: "shared".into(),
                    options: serde_json::Value::Null,
                    has_files: false,
                    databases: Arc::default(),
                    limits: limits(),
                    role: veche_script::AppRole::Clients,
                };
                let world = AppWorld::with_store(store);
                let mut vm = Vm::new(&app, &code, &world, WorkerId(worker)).expect("a VM");
                while vm.deadline_ms() == 0 {
                    vm.turn(Now::default());
                }
            });
        }
    });
    assert_eq!(store.counter(b"shared").expect("a counter").value(), 8000);
    let dict = store.dict(b"shared", None).expect("a dict");
    for (key, value) in [("sum", 8000.0), ("product", 16000.0), ("added", 2000.0)] {
        assert_eq!(
            dict.get(key.as_bytes(), 0),
            Some(Value::Number(value)),
            "{key}"
        );
    }
}
