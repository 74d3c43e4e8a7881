//! Tests of publishing when the queue is full: a handler that can wait waits, and one that can't gets an error.

mod support;

use std::rc::Rc;
use std::sync::Arc;

use support::{ANN, Bench, Folder, limits};
use veche_runtime::Host;
use veche_script::{
    AppRole, AppWorld, Effect, Effects, Now, PublishGate, ScriptApp, ScriptLimits, SourceCode, Vm,
};
use veche_types::WorkerId;

/// A VM that can't publish to the channels in `refused`.
struct Refusing {
    vm: Vm,
    refused: Rc<PublishGate>,
    effects: Effects,
    now_ms: u64,
    _folder: Folder,
}

impl Refusing {
    fn new(start: &str, refused: &[&str]) -> Self {
        let folder = Folder::new();
        let script = format!(
            "local veche, app = require 'veche', {{}}
            function app.start()
              {start}
            end
            return app"
        );
        let path = folder.write("app.lua", &script);
        let app = ScriptApp {
            name: "full".into(),
            options: serde_json::Value::Null,
            has_files: false,
            databases: Arc::default(),
            limits: limits(),
            role: AppRole::Clients,
        };
        let code = Arc::new(SourceCode::read(&path).expect("the script"));
        let (world, all) = (AppWorld::default(), Rc::new(PublishGate::default()));
        for channel in refused {
            all.set_refused(channel, true);
        }
        world.attach(&Host {
            refused: Rc::clone(&all),
            ..Host::default()
        });
        Self {
            vm: Vm::new(&app, &code, &world, WorkerId(0)).expect("a VM"),
            refused: all,
            effects: Effects::default(),
            now_ms: 0,
            _folder: folder,
        }
    }

    /// Returns what the script publishes and prints in several turns.
    fn effect_lines(&mut self) -> Vec<String> {
        for _ in 0..10 {
            self.now_ms += 1;
            self.vm.turn(Now {
                mono_ms: self.now_ms,
                ..Now::default()
            });
        }
        self.effects.clear();
        self.vm.take_effects(&mut self.effects);
        let effects = self.effects.list.iter().filter_map(|effect| match effect {
            Effect::Publish { channel, .. } => Some(format!("to {channel}")),
            Effect::Log { text, .. } => Some(text.clone()),
            _ => None,
        });
        effects.collect()
    }
}

#[test]
fn publishing_to_a_full_channel_waits() {
    let mut bench = Refusing::new(
        "for name, channel in pairs { one = 'full', two = 'free' } do
          veche.spawn(function()
            for i = 1, 2 do veche.publish(channel, 'x') end
            print(name)
          end)
        end
        local tired = veche.spawn(function() print(pcall(veche.push, 'ann', 'x')) end)
        veche.sleep(0)
        tired:cancel()
        veche.push('bob', 'x')",
        &["full", "#ann"],
    );
    assert_eq!(
        bench.effect_lines(),
        ["to free", "to free", "two", "to #bob", "false\tcancelled"]
    );
    assert_eq!(bench.effect_lines(), [""; 0]);
    assert_eq!(bench.vm.deadline_ms(), u64::MAX, "no timer is due");
    bench.refused.set_refused("#ann", false);
    assert_eq!(bench.effect_lines(), [""; 0]);
    bench.refused.set_refused("full", false);
    assert_eq!(bench.effect_lines(), ["to full", "to full", "one"]);
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn where_nothing_can_wait_it_is_an_error_that_names_the_channel() {
    let mut bench = Refusing::new(
        "local function publish(channel)
          table.sort({ 2, 1 }, function() print(pcall(veche.publish, channel, 'x')) end)
        end
        publish 'full'
        publish 'free'
        veche.sleep(0.1)
        publish 'free'",
        &["full"],
    );
    let words = "too many publications to \"full\" are waiting: try again later [full]";
    let effects = bench.effect_lines();
    assert!(
        effects[0].starts_with("false") && effects[0].ends_with(words),
        "{effects:?}"
    );
    assert_eq!(effects[1..], ["to free", "true\tnil"]);
    bench.refused.set_all_refused(true);
    bench.now_ms += 100;
    let effects = bench.effect_lines();
    assert!(
        effects[0].starts_with("false") && effects.len() == 1,
        "{effects:?}"
    );
}

#[test]
fn waiting_publishers_continue_in_order() {
    let mut bench = Refusing::new(
        "for i = 1, 1000 do
          veche.spawn(function() veche.publish('full', 'x') print(i) end)
        end",
        &["full"],
    );
    assert_eq!(bench.effect_lines(), [""; 0]);
    bench.refused.set_refused("full", false);
    let effects = bench.effect_lines();
    let order = effects.iter().filter_map(|line| line.parse::<u32>().ok());
    assert_eq!(order.collect::<Vec<_>>(), (1..=1000).collect::<Vec<_>>());
}

/// The publications of a turn are sent before the VM accepts more.
#[test]
fn a_loop_that_publishes_much_lets_it_leave() {
    let mut bench = Bench::with(
        "local veche, app = require 'veche', {}
        function app.message(conn, data)
          local piece = ('x'):rep(65536)
          for i = 1, 2000 do veche.publish('c' .. i % 50, piece) end
          print('done')
        end
        function app.request(req)
          local piece = ('x'):rep(65536)
          table.sort({ 2, 1 }, function() for i = 1, 100 do veche.publish('c', piece) end end)
          return 'done'
        end
        return app",
        ScriptLimits {
            cpu_budget: std::time::Duration::from_secs(5),
            ..limits()
        },
    );
    bench.open(ANN);
    bench.text(ANN, "go");
    let (mut pieces, mut turns) = (0, 0);
    loop {
        let effects = bench.effect_lines();
        let published = effects.iter().filter(|line| line.starts_with("publish "));
        let published = published.count();
        assert!(published <= 17, "{published} at once");
        pieces += published;
        if effects.iter().any(|line| line == "done") {
            break;
        }
        turns += 1;
        assert!(turns < 1000, "{pieces} pieces");
        bench.advance(1);
    }
    assert_eq!(pieces, 2000);
    // Code that can't wait may publish more, up to its limit.
    bench
        .vm
        .request(ANN, support::request("GET", "/", ""), bench.now);
    let effects = bench.effect_lines();
    assert_eq!(effects.len(), 101, "{:?}", effects.last());
}
