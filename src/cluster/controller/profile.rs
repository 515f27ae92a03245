//! What released versions of the controller do differently, one question each.
use super::sandbox::Version;

/// The released version whose behaviour is played.
///
/// | | v0.4.6 | v0.5.0 | v0.5.6 |
/// |---|---|---|---|
/// | Sandbox API | `v1alpha1` | `v1beta1` | `v1beta1` |
/// | Ready of a suspended Sandbox | True, at once | False/SandboxSuspended | False/SandboxSuspended |
/// | Suspended | never | True as soon as the Pod is being deleted; left as it is after a resume | True once the Pod is gone; False/NotSuspended after a resume |
/// | Ready=False for a Pod that ended, or for several | - | - | PodSucceeded, PodFailed, MultiplePods |
/// | PodScheduled | - | - | mirrored |
/// | status write | update with optimistic lock | update with optimistic lock | merge patch without one |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// v0.4.6, as all of v0.4.x.
    V046,
    /// v0.5.0 to v0.5.3.
    V050,
    /// v0.5.4 to v0.5.6.
    #[default]
    V056,
}

impl Profile {
    /// The version of the Sandbox API that it reads and writes.
    pub fn api_version(self) -> Version {
        match self {
            Profile::V046 => Version::V1alpha1,
            Profile::V050 | Profile::V056 => Version::V1beta1,
        }
    }
    /// Does a pass over a suspended Sandbox go on with the Pod that it deletes? Older ones forget it at once.
    pub(super) fn sees_the_ending_pod(self) -> bool {
        self == Profile::V056
    }
    /// Does it say that it is suspended, or suspending?
    pub(super) fn says_suspended(self) -> bool {
        self != Profile::V046
    }
    /// Does it say NotSuspended of a Sandbox that runs?
    pub(super) fn says_not_suspended(self) -> bool {
        self == Profile::V056
    }
    /// Is a suspended Sandbox Ready, since having no Pod is what was asked for?
    pub(super) fn is_ready_when_off(self) -> bool {
        self == Profile::V046
    }
    /// Does Ready tell Pods that ended and several Pods apart from those that are not there yet?
    pub(super) fn tells_pods_apart(self) -> bool {
        self == Profile::V056
    }
    /// Does it mirror the Pod's PodScheduled?
    pub(super) fn mirrors_scheduling(self) -> bool {
        self == Profile::V056
    }
    /// Does the status have the count of replicas, and not the node's name?
    pub(super) fn counts_replicas(self) -> bool {
        self == Profile::V046
    }
    /// Is the status written whole and only onto the resourceVersion that was read?
    pub(super) fn locks_status(self) -> bool {
        self != Profile::V056
    }
}
