// The public surface of @acode/sandbox and nothing else.

export { Acode } from './host/acode.ts';
export type { Logs, Observer } from './host/acode.ts';
export type { ConfigInput } from './contract/config.ts';
export type {
  CheckedConfigFile,
  ConfigChange,
  ConfigFile,
  ConfigLayer,
  ConfigPlan,
  ConfigProblem,
  ConfigValue,
  Configuration,
  Consent,
  LooseningChange,
} from './contract/configuration.ts';
export type {
  Audit,
  AuditChange,
  AuditFault,
  AuditHead,
  AuditKind,
  AuditProblem,
  AuditRecord,
  AuditVerification,
  ChangesQuery,
  ProvisionFigures,
  RecordedChanges,
  Stats,
  StatsQuery,
} from './contract/audit.ts';
export { CACHE_TOOLS } from './contract/caches.ts';
export type { CachePolicy, CacheSpec, CacheTool, CacheVolume } from './contract/caches.ts';
export { chooseChanges } from './contract/changes.ts';
export type { ChosenChanges } from './contract/changes.ts';
export type { ArtifactRequest, Command, RunRequest } from './contract/command.ts';
export { AcodeError, ERRORS, defineErrors, entry as errorEntry, limitError } from './contract/errors.ts';
export type {
  AnyEntry,
  ErrorCode,
  ErrorContexts,
  ErrorEntry,
  ErrorFindings,
  ErrorJson,
  ErrorTable,
  ForeignErrorJson,
  MountViolation,
  SecurityViolation,
} from './contract/errors.ts';
export type { AcodeEvent, AcodeEventType, AcodeEvents, EventBus, RemovalReason } from './contract/events.ts';
export type {
  EngineResource,
  CleanupOptions,
  CleanupReport,
  Explanation,
  OwnDirectory,
  Remote,
  SparedTrace,
  KpiEvent,
  KpiReport,
  LevelStatus,
  LogEvent,
  RunningLog,
  SandboxCounts,
  SandboxDetails,
  SandboxInfo,
  SandboxState,
  SavedLog,
  SavedLogInfo,
  ServeSetting,
  Status,
  UninstallOptions,
  UninstallReport,
  PolicyRules,
  PoolOptions,
  WarmPool,
} from './contract/host.ts';
export type {
  ImageInfo,
  ImageList,
  ImagePruneOptions,
  ImagePruneReport,
  ImagePullOptions,
  Images,
  LayerProgress,
  PrunedImage,
  PullProgress,
  PulledImage,
  SignedImage,
  VerifySignature,
} from './contract/images.ts';
export { LEVELS, RISKS, isAtLeast, isBoundary } from './contract/levels.ts';
export { PROFILE_NAMES } from './contract/profiles.ts';
export type { ProfileName } from './contract/profiles.ts';
export type { Level, Risk } from './contract/levels.ts';
export { policyFrom } from './contract/policy.ts';
export type {
  AllowedHosts,
  DiskInput,
  EffectivePolicy,
  FilledCaches,
  ImageTrust,
  Layer,
  Limits,
  LimitsInput,
  MountRequest,
  NamedNetwork,
  PolicyFields,
  PolicyInput,
  PortRequest,
  Sourced,
  UserId,
} from './contract/policy.ts';
export { networkName } from './contract/network.ts';
export type { NetworkMode } from './contract/network.ts';
export type {
  EgressConnection,
  EgressProtocol,
  EgressRefusal,
  EgressRequests,
  EgressRule,
  EgressTreatment,
} from './contract/egress.ts';
export type { BuildProjectOptions, ProjectImage, ProjectInput, ProjectInstall } from './contract/project-image.ts';
export type { Clock, LogFields, Logger, MetricLabels, Metrics } from './contract/ports.ts';
export { denialParts, denialText } from './contract/denial-text.ts';
export type { DenialParts, DenialStyle } from './contract/denial-text.ts';
export { layerText, rendered } from './contract/wording.ts';
export type { FieldReference, SettingReference, SourceReference, Terms, Text, TextPart } from './contract/wording.ts';
export { settingCommand, settingText, settingYaml } from './contract/setting.ts';
export type { Setting, SettingValue } from './contract/setting.ts';
export type { Source } from './contract/sourced.ts';
export { denialSchema } from './contract/denial-schema.ts';
export { RISKY_KINDS, isRiskyKind } from './contract/result.ts';
export { errorFromJson } from './contract/error-json.ts';
export { DENIAL_RULES } from './contract/denials.ts';
export type { Denial, DenialEffect, Remedy, RuleId, RuleValue, WritablePlace } from './contract/denials.ts';
export type {
  ArtifactReport,
  ChangeCounts,
  LimitName,
  PublishedPort,
  RiskyChange,
  RiskyKind,
  RunResult,
  RunningCommand,
  ScanState,
  Usage,
  WebRunResult,
  ForkResult,
} from './contract/result.ts';
export type {
  ApplyReport,
  ForkChange,
  ForkConflict,
  ForkConflictReason,
  ForkContentGap,
  ForkDiffCounts,
  ForkDiffSummary,
  ForkEntryKind,
  ForkKept,
  ForkRefusal,
  ForkRefusalReason,
  ForkSides,
  PendingApply,
  WorkspaceDiff,
} from './contract/fork.ts';
export type {
  AcceptedRisk,
  ForkApplied,
  ForkApplyEnded,
  ForkApplyRequest,
  ForkBranchFound,
  ForkBranchRequest,
  ForkBranched,
  ForkCommand,
  ForkConsent,
  ForkDiffRequest,
  ForkInfo,
  ForkListOptions,
  ForkPatch,
  ForkPatchRequest,
  Forks,
  ForkCreateOptions,
  ForkExport,
  ForkExportRequest,
  ForkImportRequest,
  ForkUndoOptions,
  PatchOmission,
} from './contract/forks.ts';
export { maskWarningText } from './contract/masks.ts';
export type { MaskedPath, MaskReport, Masks, MaskWarning } from './contract/masks.ts';
export type { ScanJob, ScanReport, ScanRoot } from './contract/scan.ts';
export type { Sandbox } from './persistent/sandbox.ts';
export { createRequestFrom } from './contract/sandbox.ts';
export type {
  CommandHandle,
  CommandInfo,
  CommandRequest,
  CommandRunner,
  Commands,
  ContentOptions,
  CreateFields,
  CreateRequest,
  DirectoryEntry,
  DirectoryOptions,
  FileCall,
  FileChange,
  FileStats,
  Files,
  ForwardedPort,
  Ports,
  ReadingOptions,
  RunnerRequest,
  StreamOptions,
  TerminalHandle,
  TerminalRequest,
  TerminalSize,
  TransferOptions,
  TransferReport,
  WriteFlag,
  WritingOptions,
} from './contract/sandbox.ts';
export type {
  DependencySpec,
  FileIdentity,
  ImageSpec,
  MountSpec,
  SandboxIdentity,
  SandboxSpec,
  TmpfsSpec,
} from './contract/spec.ts';
export type {
  AttackOptions,
  AttackReport,
  Check,
  CheckStatus,
  DoctorReport,
  Grade,
  Probe,
  ProbeVerdict,
} from './host/doctor/report.ts';
export type { AcodeOptions } from './host/options.ts';
export type { TrustKey } from './policy/repository.ts';
export type { RefusedKey, Trust, TrustReport } from './run/repository.ts';
export { TerminalSanitiser } from './run/output/terminal.ts';
export { formatBytes, parseBytes } from './contract/units.ts';
