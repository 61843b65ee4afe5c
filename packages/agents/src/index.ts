// The public surface of @acode/agents and nothing else.

export { loginServerOf } from './credential.ts';
export type { AgentImage, ImageTraits } from './image.ts';
export type { LeftOut } from './copied.ts';
export { AGENT_ERRORS } from './errors.ts';
export { PRESETS, agentCalled, agentOrProgram, agentsFile, knownAgents } from './known.ts';
export type { KnownAgent } from './known.ts';
export { isNear } from './near.ts';
export { presetSchema } from './preset.ts';
export type { AgentPreset, ProgramPackage } from './preset.ts';
export { addProgram, hasProgram, platformText, platformsOf } from './program.ts';
export type { Fetching, Platform, ProgramProgress } from './program.ts';
export { agentTask } from './request.ts';
export type { AgentOptions, AgentStart, AgentTask } from './request.ts';
export { offeredVersion, pinVersion } from './update.ts';
export type { OfferedVersion } from './update.ts';
