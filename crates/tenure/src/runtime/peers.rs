//! What a campaign learns of the other workers of its resource, and tells once: how many tickets there are, and that another
//! worker has the same label.

use crate::campaign::state::Change;
use crate::store::Known;

/// What a campaign has told.
#[derive(Debug)]
pub(crate) struct Peers {
    asked: u32,
    tickets: u32,
    has_told_of_namesake: bool,
}

impl Peers {
    /// `asked` is the number of tickets that the campaign wants its resource to have.
    pub(crate) fn new(asked: u32) -> Self {
        Self { asked, tickets: asked, has_told_of_namesake: false }
    }

    /// How many tickets the campaign asked for.
    pub(crate) fn asked(&self) -> u32 {
        self.asked
    }

    /// What is news about the resource.
    // req: T11
    pub(crate) fn note(&mut self, known: Known) -> Vec<Change> {
        let mut news = Vec::new();
        if let Some(tickets) = known.tickets.filter(|tickets| *tickets != self.tickets) {
            self.tickets = tickets;
            news.push(Change::TicketsChanged { tickets, asked: self.asked });
        }
        if known.has_namesake && !self.has_told_of_namesake {
            self.has_told_of_namesake = true;
            news.push(Change::DuplicateLabel);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(tickets: u32, has_namesake: bool) -> Known {
        Known { tickets: Some(tickets), has_namesake }
    }

    #[test]
    fn a_number_of_tickets_is_told_when_it_is_not_the_one_before() {
        let mut peers = Peers::new(1);
        let changed = |tickets| vec![Change::TicketsChanged { tickets, asked: 1 }];

        assert_eq!(peers.note(Known::default()), []);
        assert_eq!(peers.note(known(1, false)), []);
        assert_eq!(peers.note(known(3, false)), changed(3));
        assert_eq!(peers.note(known(3, false)), []);
        assert_eq!(peers.note(known(1, false)), changed(1));
    }

    #[test]
    fn a_worker_with_the_same_label_is_told_of_once() {
        let mut peers = Peers::new(1);

        assert_eq!(peers.note(known(1, true)), [Change::DuplicateLabel]);
        assert_eq!(peers.note(known(1, true)), []);
    }
}
