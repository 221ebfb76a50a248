//! Every family keeps the contract of attention.

use nn::{Network, Reach};
use testkit::contract::holds;
use testkit::parity::Question;

use super::duet::duet;
use super::pixart::pixart;
use super::toy;
use super::wan::wan;

/// The names of the sites of the first block with what they reach.
fn reaches<M: Network>(question: &Question<M>) -> Vec<(&'static str, Reach)> {
    let Question { model, store, inputs } = question;
    let all = holds(model, store, inputs).into_iter();
    all.filter(|(site, _)| site.layer == 0).map(|(site, reach)| (site.name, reach)).collect()
}

#[test]
fn of_every_family() {
    let [own, text] = [Reach::Own, Reach::Replicated];
    assert_eq!(reaches(&toy(2, 5)), [("own", own), ("text", text)]);
    assert_eq!(reaches(&pixart([3, 4])), [("attn1", own), ("attn2", text)]);
    assert_eq!(reaches(&wan([2, 3, 2])), [("own", own), ("text", text), ("image", text)]);
    // Voices of different lengths: what one hears of the other is not its own.
    let heard = [
        ("video", own),
        ("video-text", text),
        ("video-audio", Reach::Sharded),
        ("audio", own),
        ("audio-text", text),
        ("audio-video", Reach::Sharded),
    ];
    assert_eq!(reaches(&duet([2, 3, 2], Some(7))), heard);
}
