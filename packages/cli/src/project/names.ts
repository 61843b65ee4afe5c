// Names of jobs and tools of a project. Without imports: the command line loads them with every call.

/** What is done with a project. */
export type Job = 'build' | 'test';

/** The tools, as `--with` names them. */
export const TOOL_NAMES = ['npm', 'pnpm', 'yarn', 'pytest', 'cargo', 'go', 'dotnet', 'make'] as const;

/** The name of a tool. */
export type ToolName = (typeof TOOL_NAMES)[number];
