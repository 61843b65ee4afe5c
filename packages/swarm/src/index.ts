// The public surface of @acode/swarm and nothing else.

export { swarmAgents } from './agents.ts';
export type { AgentSurroundings, SwarmAgents } from './agents.ts';
export { ask, isListening } from './control.ts';
export type { ControlAnswer, ControlRequest } from './control.ts';
export { SWARM_ERRORS, swarmError } from './errors.ts';
export { plainText, stateOf } from './notify.ts';
export type { Notice } from './notify.ts';
export { Orchestrator } from './orchestrator.ts';
export { SwarmSandboxes } from './sandboxes.ts';
export type { AtTerminal } from './sandboxes.ts';
export { limitsFrom, planSwarm, thisMachine } from './plan.ts';
export type { SwarmMachine, SwarmOptions, SwarmPlan } from './plan.ts';
export { addStory, mergeSwarm } from './merge.ts';
export type { MergeOutcome, MergeReport, Merging } from './merge.ts';
export { acceptTask, commentOn, reviewTask } from './review.ts';
export type { Reviewing, TaskReview } from './review.ts';
export type { BranchRisk, Brought } from './branches.ts';
export { again, goesOn, progressOf } from './record.ts';
export type { Attention, Reason, SwarmRecord, TaskRecord, TaskStatus } from './record.ts';
export { STATE_FILE, SwarmStore, discardForks, taskIn } from './store.ts';
export { readSettings } from './settings.ts';
export type { NotifySettings, SwarmSettings, Told } from './settings.ts';
export type { CopyState, SwarmEvent } from './store.ts';
export type { Task, TaskPolicy } from './task.ts';
export { TASK_DIRECTORY, addTask, findTaskFiles, readTask, readTasks } from './task-files.ts';
