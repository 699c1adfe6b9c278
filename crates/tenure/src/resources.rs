//! Resource names as a closed set, checked when the program is built.

/// Declares the resources of a module as an enum. Each name begins with that of the module, so that two modules
/// never collide, and each can have its number of tickets.
///
/// ```
/// tenure::resources! {
///     /// What the student module does once in the cluster.
///     pub enum Job in "student" { Echo = "echo", Report = "report" (tickets: 2) }
/// }
///
/// assert_eq!(Job::Echo.as_ref(), "student.echo");
/// assert_eq!(Job::Report.tickets(), 2);
/// assert_eq!(Job::ALL, [Job::Echo, Job::Report]);
/// # async fn example(worker: tenure::Worker) {
/// let campaign = Job::Report.campaign(&worker); // with its two tickets
/// # }
/// ```
///
/// What there cannot be does not compile:
///
/// ```compile_fail
/// tenure::resources! { enum Job in "student" { Echo = "echo" (tickets: 0) } }
/// ```
// req: O6
#[macro_export]
macro_rules! resources {
    ($(#[$doc:meta])* $vis:vis enum $name:ident in $module:literal {
        $($resource:ident = $text:literal $((tickets: $tickets:literal))?),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name { $(#[doc = concat!("`", $module, ".", $text, "`")] $resource),+ }

        #[allow(dead_code)] // Nobody needs all of it.
        impl $name {
            /// All of them.
            $vis const ALL: &'static [Self] = &[$(Self::$resource),+];

            /// A campaign of this worker for the resource, with its tickets.
            $vis fn campaign(self, worker: &$crate::Worker) -> $crate::CampaignBuilder {
                worker.campaign(self).tickets(self.tickets())
            }

            /// How many may own the resource at once.
            #[must_use]
            $vis const fn tickets(self) -> u32 {
                match self { $(Self::$resource => $crate::resources!(@tickets $($tickets)?)),+ }
            }
        }

        impl ::core::convert::AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                match self { $(Self::$resource => concat!($module, ".", $text)),+ }
            }
        }
    };
    (@tickets) => { 1 };
    (@tickets $tickets:literal) => {
        const { assert!(1 <= $tickets && $tickets <= 1_000, "a resource has 1 to 1000 tickets"); $tickets }
    };
}
