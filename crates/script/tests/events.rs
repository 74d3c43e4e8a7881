//! Tests of the events of channels and users that scripts receive.

mod support;

use support::Bench;
use veche_script::ChannelEventView;

const NEWS: ChannelEventView<'static> = ChannelEventView {
    kind: "occupied",
    channel: Some("news"),
    user: None,
    client: None,
    info: None,
    at_ms: 1_500,
};

#[test]
fn batches_are_delivered_one_by_one() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.start() veche.sleep(1) end
        function app.events(events, lost)
          for i, event in ipairs(events) do
            print(i, event.type, event.channel, event.user, event.client, event.info and event.info.name, event.at, lost)
          end
          if #events == 3 then error 'no more' end
          veche.sleep(1)
        end
        return app",
    );
    // A VM takes no events before `app.start` has ended.
    assert!(!bench.vm.takes_events());
    bench.advance(1000);
    assert!(bench.vm.takes_events());
    let joined = ChannelEventView {
        kind: "joined",
        user: Some("ann"),
        client: Some("c1"),
        info: Some(br#"{"name":"Ann"}"#),
        ..NEWS
    };
    bench.vm.deliver(&[NEWS, joined], 7, bench.now);
    assert!(!bench.vm.takes_events());
    assert_eq!(
        bench.effect_lines(),
        [
            "1\toccupied\tnews\tnil\tnil\tnil\t1.5\t7",
            "2\tjoined\tnews\tann\tc1\tAnn\t1.5\t7"
        ]
    );
    bench.advance(1000);
    assert!(bench.vm.takes_events());
    // An event whose handler fails is not delivered again.
    bench.vm.deliver(&[NEWS; 3], 0, bench.now);
    assert!(bench.vm.takes_events());
    let effects = bench.effect_lines();
    assert!(effects[3].contains("no more"), "{effects:?}");
    // A script without an event handler receives no events.
    let mut bench = Bench::new("return { request = function() end }");
    bench.vm.turn(bench.now);
    assert!(!bench.vm.takes_events());
}
