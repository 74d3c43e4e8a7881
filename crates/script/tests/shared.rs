//! What the VMs of several workers share.

mod support;

use std::sync::Arc;
use std::thread;

use std::rc::Rc;
use support::{Folder, limits};

use veche_script::{App, Code, Effect, Effects, Now, Refused, Vm, World};
use veche_store::{Store, Value};

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
    let code = Arc::new(Code::read(&path).expect("the script"));
    thread::scope(|scope| {
        for worker in 0..4 {
            let (store, code) = (Arc::clone(&store), Arc::clone(&code));
            scope.spawn(move || {
                let app = App {
                    name: "shared".into(),
                    options: serde_json::Value::Null,
                    has_files: false,
                    limits: limits(),
                    role: veche_script::Role::Clients,
                };
                let world = World::with_store(store);
                let mut vm = Vm::new(&app, &code, &world, worker).expect("a VM");
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

#[test]
fn what_cannot_be_taken_is_refused_with_an_error_that_names_the_channel() {
    let folder = Folder::new();
    let path = folder.write(
        "app.lua",
        "local veche = require 'veche'
        local app = {}
        function app.start()
          for _, channel in ipairs { 'full', 'free' } do
            print(pcall(veche.publish, channel, 'x'))
          end
          print(pcall(veche.push, 'ann', 'x'))
          veche.sleep(1)
          print(pcall(veche.publish, 'free', 'x'))
        end
        return app",
    );
    let code = Arc::new(Code::read(&path).expect("the script"));
    let app = App {
        name: "full".into(),
        options: serde_json::Value::Null,
        has_files: false,
        limits: limits(),
        role: veche_script::Role::Clients,
    };
    let (world, refused) = (World::default(), Rc::new(Refused::default()));
    refused.set("full", true);
    refused.set("#ann", true);
    refused.set("#ann", false);
    world.set_refused(Rc::clone(&refused));
    let mut vm = Vm::new(&app, &code, &world, 0).expect("a VM");
    let mut effects = Effects::default();
    let mut told = |vm: &mut Vm, now_ms| {
        vm.turn(Now {
            mono_ms: now_ms,
            ..Now::default()
        });
        vm.take_effects(&mut effects);
        let (list, _) = effects.drain();
        let told = list.filter_map(|effect| match effect {
            Effect::Publish { channel, .. } => Some(format!("to {channel}")),
            Effect::Log { text, .. } => Some(text),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let all = told(&mut vm, 0);
    let words = "too much waits to be published to \"full\": try again later";
    assert!(
        all[0].starts_with("false") && all[0].ends_with(words),
        "{all:?}"
    );
    let taken = ["to free", "true\tnil", "to #ann", "true\tnil"];
    assert_eq!(all[1..], taken);
    refused.set_all(true);
    let all = told(&mut vm, 2_000);
    assert!(all[0].starts_with("false") && all.len() == 1, "{all:?}");
}
