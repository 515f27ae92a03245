//! What can go wrong, and what a caller of the gRPC service is told.
use tonic::{Code, Status};

/// Failure of a driver operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// An object of that name exists already.
    #[error("already exists: {0}")]
    AlreadyExists(String),
    /// The sandbox, or an object that it needs, is not there.
    #[error("not found: {0}")]
    NotFound(String),
    /// The request itself is wrong.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// The request does not fit the sandbox's present state.
    #[error("failed precondition: {0}")]
    Precondition(String),
    /// Anything else.
    #[error("{0}")]
    Message(String),
}

impl DriverError {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        match self {
            DriverError::AlreadyExists(_) => Code::AlreadyExists,
            DriverError::NotFound(_) => Code::NotFound,
            DriverError::InvalidArgument(_) => Code::InvalidArgument,
            DriverError::Precondition(_) => Code::FailedPrecondition,
            DriverError::Message(_) => Code::Internal,
        }
    }
}

impl From<DriverError> for Status {
    fn from(e: DriverError) -> Status {
        let code = e.code();
        let (DriverError::AlreadyExists(m)
        | DriverError::NotFound(m)
        | DriverError::InvalidArgument(m)
        | DriverError::Precondition(m)
        | DriverError::Message(m)) = e;
        Status::new(code, m)
    }
}

/// Failure of one request to the Kubernetes API.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server refused it.
    #[error("{what}: {code} {reason}: {message}")]
    Refused {
        /// The request in words, `get pods/demo`.
        what: String,
        /// HTTP status code; 0 if the server's answer had none.
        code: u16,
        /// Reason of the Status, one word.
        reason: String,
        /// Message of the Status.
        message: String,
    },
    /// No answer in time.
    #[error("{what}: no answer within {seconds} s")]
    TimedOut {
        /// The request in words.
        what: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The answer could not be had or read.
    #[error("{what}: {source}")]
    Failed {
        /// The request in words.
        what: String,
        /// What the client says.
        source: Box<kube::Error>,
    },
}

impl CallError {
    /// The client's error about the request `what`.
    pub fn new(what: String, e: kube::Error) -> Self {
        match e {
            kube::Error::Api(status) => {
                let kube::core::Status { code, reason, message, .. } = *status;
                CallError::Refused { what, code, reason, message }
            }
            e => CallError::Failed { what, source: Box::new(e) },
        }
    }
    /// The object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CallError::Refused { code: 404, .. })
    }
    /// Another object of that name is.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, CallError::Refused { code: 409, reason, .. } if reason == "AlreadyExists")
    }
    /// The request may have been carried out all the same: there was no answer, or one that says nothing of that.
    pub fn leaves_open(&self) -> bool {
        match self {
            CallError::Refused { code, .. } => *code == 0 || *code >= 500,
            CallError::TimedOut { .. } | CallError::Failed { .. } => true,
        }
    }
    /// A precondition or an optimistic lock failed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, CallError::Refused { code: 409, .. }) && !self.is_already_exists()
    }
}

impl From<CallError> for DriverError {
    fn from(e: CallError) -> Self {
        if e.is_already_exists() {
            DriverError::AlreadyExists(e.to_string())
        } else if e.is_not_found() {
            DriverError::NotFound(e.to_string())
        } else {
            DriverError::Message(e.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, reason: &str) -> CallError {
        let status = kube::core::Status::failure("why", reason).with_code(code);
        CallError::new("create pods/demo".into(), kube::Error::Api(status.boxed()))
    }

    #[test]
    fn each_failure_of_the_api_has_its_code() {
        for (code, reason, expected) in [
            (409, "AlreadyExists", Code::AlreadyExists),
            (409, "Conflict", Code::Internal),
            (404, "NotFound", Code::NotFound),
            (404, "Failed to parse error data", Code::NotFound),
            (403, "Forbidden", Code::Internal),
            (422, "Invalid", Code::Internal),
            (500, "InternalError", Code::Internal),
            (504, "Timeout", Code::Internal),
        ] {
            let status = Status::from(DriverError::from(refused(code, reason)));
            assert_eq!(status.code(), expected, "{code} {reason}");
            assert!(status.message().contains("create pods/demo") && status.message().contains("why"), "{status}");
        }
        let late = CallError::TimedOut { what: "get pods/demo".into(), seconds: 30 };
        assert_eq!(DriverError::from(late).code(), Code::Internal);
    }

    #[test]
    fn a_request_without_a_clear_answer_may_have_been_carried_out() {
        for (code, open) in
            [(404, false), (409, false), (422, false), (429, false), (500, true), (503, true), (504, true)]
        {
            assert_eq!(refused(code, "Reason").leaves_open(), open, "{code}");
        }
        assert!(CallError::TimedOut { what: "create sandboxes/demo".into(), seconds: 30 }.leaves_open());
    }

    #[test]
    fn each_failure_of_an_operation_has_its_code_and_keeps_its_message() {
        for (error, code) in [
            (DriverError::AlreadyExists("m".into()), Code::AlreadyExists),
            (DriverError::NotFound("m".into()), Code::NotFound),
            (DriverError::InvalidArgument("m".into()), Code::InvalidArgument),
            (DriverError::Precondition("m".into()), Code::FailedPrecondition),
            (DriverError::Message("m".into()), Code::Internal),
        ] {
            let status = Status::from(error);
            assert_eq!((status.code(), status.message()), (code, "m"));
        }
    }

    #[test]
    fn a_taken_name_is_not_a_conflict() {
        assert!(refused(409, "AlreadyExists").is_already_exists() && !refused(409, "AlreadyExists").is_conflict());
        assert!(refused(409, "Conflict").is_conflict() && !refused(409, "Conflict").is_already_exists());
        assert!(!refused(412, "Conflict").is_conflict());
    }
}
