//! The exit list: a walk finds each item that is in the list, whatever other threads insert and remove.

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use crate::Model;
use crate::sync::exit_list::ExitList;

pub(crate) const MODELS: &[Model] = &[
    ("exit list: a walk finds an item while others change", walk_finds_an_item_while_others_change),
    ("exit list: a place is free when it is empty", place_is_free_when_it_is_empty),
    ("exit list: removal waits for a walk", removal_waits_for_a_walk),
];

fn items(list: &ExitList<u8>) -> Vec<u8> {
    let mut items = Vec::new();
    list.walk(|item| items.push(*item));
    items
}

fn walk_finds_an_item_while_others_change() {
    let list = Arc::new(ExitList::new(3));
    let removed = list.insert(1).unwrap();
    let kept = list.insert(2);
    let other = thread::spawn({
        let list = Arc::clone(&list);
        move || {
            list.remove(removed);
            list.insert(3).map(drop)
        }
    });
    let found = items(&list);
    assert_eq!(found.iter().filter(|item| **item == 2).count(), 1, "{found:?}");
    assert!(kept.is_some() && other.join().unwrap().is_some());
    let mut found = items(&list);
    found.sort_unstable();
    assert_eq!(found, [2, 3]);
}

fn place_is_free_when_it_is_empty() {
    let list = Arc::new(ExitList::new(1));
    let removed = list.insert(1).unwrap();
    let other = thread::spawn({
        let list = Arc::clone(&list);
        move || list.remove(removed)
    });
    let place = list.insert(2);
    let is_found = items(&list).contains(&2);
    other.join().unwrap();
    assert_eq!(is_found, place.is_some());
    let found = items(&list);
    assert_eq!(found, if place.is_some() { vec![2] } else { vec![] });
}

fn removal_waits_for_a_walk() {
    let (list, item) = (Arc::new(ExitList::new(1)), Arc::new(UnsafeCell::new(())));
    let place = list.insert(Arc::clone(&item)).unwrap();
    let is_walking = Arc::new(AtomicBool::new(false));
    let walk = thread::spawn({
        let (list, is_walking) = (Arc::clone(&list), Arc::clone(&is_walking));
        move || {
            list.walk(|item| {
                is_walking.store(true, Ordering::Relaxed);
                item.with(|_| ());
            });
        }
    });
    // loom tries an order in which the removal begins during the walk, because of this load.
    is_walking.load(Ordering::Relaxed);
    list.remove(place);
    item.with_mut(|_| ());
    walk.join().unwrap();
}
