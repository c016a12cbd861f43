//! The diagnostic codes: their severities and the pages that explain them.
//!
//! Numbers are permanent: an unused number is never assigned again.

use std::fmt;

use skein_core::plan::Severity;

macro_rules! codes {
    ($($number:literal $variant:ident $severity:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($variant,)* }

        impl Code {
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// The code as users see it, such as `SK0101`.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => concat!("SK", stringify!($number)),)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity,)* }
            }

            /// The page that explains it, with a wrong and a right example.
            pub fn page(self) -> &'static str {
                match self {
                    $(Code::$variant => include_str!(concat!("../../../../docs/codes/SK", stringify!($number), ".md")),)*
                }
            }
        }
    };
}

codes! { // table
    // Reading.
    0001 CannotRead Error,
    0002 TooLarge Error,
    0003 NotUtf8 Error,
    0004 BadYaml Error,
    0005 DuplicateKey Error,
    0006 TooManyNodes Error,
    0007 TooDeepYaml Error,
    0008 TagRefused Error,
    0009 MergeRefused Error,
    0010 ManyDocuments Error,
    0011 KeyNotText Error,
    0012 UnknownAlias Error,
    0013 EmptySource Error,
    0014 LargeSource Warning,
    0015 BadFrontMatter Error,
    0016 UnknownFormat Error,
    0017 BadConfiguration Error,
    // Fields.
    0101 UnknownField Error,
    0102 MissingField Error,
    0103 WrongType Error,
    0104 UnknownWord Error,
    0105 NoValue Error,
    0106 BadNumber Error,
    0107 BadDuration Error,
    0108 BadName Error,
    0109 ReservedName Error,
    0110 TwinNames Error,
    0111 BadPath Error,
    0112 RemovedField Error,
    0113 FieldsClash Error,
    0114 BadSchema Error,
    0115 ReservedVariable Error,
    0121 IgnoredField Warning,
    0122 OldField Warning,
    // Steps and their dependencies.
    0201 NoSteps Error,
    0202 DuplicateName Error,
    0203 UnknownStep Error,
    0204 Cycle Error,
    0205 Unreachable Error,
    0206 Misplaced Error,
    0207 TooFew Error,
    0208 UnknownWorkflow Error,
    0209 Recursion Error,
    0210 CallsTooDeep Error,
    0211 UnknownArtifact Error,
    0212 NotBefore Error,
    0213 BadUndo Error,
    0214 TooBig Error,
    0215 BadSettler Error,
    // Expressions.
    0301 BadExpression Error,
    0302 ReadsUnknownStep Error,
    0303 ReadsUnknownParameter Error,
    0304 ReadsUnknownOutput Error,
    0305 OutOfSight Error,
    0306 NoItem Error,
    // Parameters of one run.
    0401 MissingParameter Error,
    0402 BadParameter Error,
    0403 BorderClash Error,
    // Artifacts that steps pass to one another.
    0501 SamePath Warning,
    // AIP-15, and schedules.
    0601 NobodyInRole Warning,
    0602 StaysText Warning,
    0603 BadSchedule Error,
    0604 Wider Warning,
    0605 NobodyProvides Warning,
    0606 PolicyNotKept Warning,
    0607 SecretRefused Error,
    // IOA, and names that a project defines.
    0701 NameNotDefined Error,
    0702 NameNotChecked Warning,
    0703 RetriedAnyway Warning,
    0704 NoUndo Warning,
    0705 UnusedUndo Warning,
    0706 NearlyGate Warning,
    0708 TriggerNotServed Note,
    // SWDL.
    0801 Widens Error,
    0802 Protected Error,
    0803 ReadsUnknownVariable Error,
    0804 ExpressionAsProgram Error,
    0805 BadCommand Error,
    0806 NotTold Warning,
    0807 UnboundContext Warning,
    // Valid but perhaps unwise.
    0901 NoTimeout Warning,
    0902 LongTimeout Warning,
    0903 WaitOutlivesRun Warning,
    0904 QuiteBig Warning,
    0905 ManyTries Warning,
    0906 SkippedGate Warning,
    0907 GateOpensItself Warning,
    0908 AnyoneMayApprove Warning,
    0909 InputMayBeMissing Warning,
    0910 UnboundedEach Warning,
    0911 UndeclaredOutput Warning,
    0912 TypeClash Warning,
    0913 IndirectReference Warning,
    0914 SharedWorkspace Warning,
    0915 OutsideWorkspace Warning,
    0916 UntrustedText Warning,
    0921 NothingToUndo Note,
    0922 WorkerStarts Note,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Code {
    type Err = ();

    fn from_str(text: &str) -> Result<Code, ()> {
        Code::ALL.iter().copied().find(|code| code.as_str().eq_ignore_ascii_case(text)).ok_or(())
    }
}
