// Preset of a coding agent: everything that differs from one agent to the next, as data. Templates have words in braces, such as
// `{program}`; nothing in a preset is code.

import * as z from 'zod';

/** The schema of a whole preset. */
export const presetSchema = z.strictObject({
  /** What the user calls it: `claude`. */
  name: z.string().regex(/^[a-z][a-z0-9-]{0,30}$/, 'small letters, digits and hyphens'),
  /** Its name in sentences. */
  title: z.string().min(1).max(60),
  /** The version of its program; absent for a program of the image. */
  version: z
    .string()
    .regex(/^[0-9A-Za-z.+-]{1,60}$/)
    .optional(),
  /** What its program is made of; absent for a program of the image. */
  program: z
    .strictObject({
      /** Packages of npm; those count whose platform is that of the sandbox. */
      packages: z
        .array(
          z.strictObject({
            name: z.string().regex(/^(?:@[a-z0-9-]+\/)?[a-z0-9][a-z0-9._-]*$/),
            /** Its version; `{version}` stands for that of the agent. */
            version: z.string(),
            arch: z.enum(['x64', 'arm64']).optional(),
            libc: z.enum(['glibc', 'musl']).optional(),
            /** Size of its archive, for the progress. */
            bytes: z.int().positive().optional(),
            /** Which of its files are needed, and where they are in the directory of the program. */
            files: z.array(z.strictObject({ from: z.string(), to: z.string() })).min(1),
          }),
        )
        .min(1),
      /** The integrity of each package that there is, by `name@version`, as npm writes it. */
      integrity: z.record(z.string(), z.string().regex(/^sha512-[A-Za-z0-9+/]{86}==$/)),
      /** Directories of the program that stand at the end of `PATH`. */
      path: z.array(z.string()).optional(),
    })
    .optional(),
  /** Shells that it runs commands with: the image has to have one of them. Absent where any shell will do. */
  shells: z
    .array(z.enum(['bash', 'zsh']))
    .min(1)
    .optional(),
  /** The program and the arguments that it always has. */
  command: z.array(z.string()).min(1),
  /**
   * The arguments of each way to start it. `{arguments}`, alone, stands for those of the user, `{prompt}` for the task.
   */
  start: z.strictObject({
    terminal: z.array(z.string()),
    prompt: z.array(z.string()),
    /** The same in the session before; absent where it cannot. */
    resumeTerminal: z.array(z.string()).optional(),
    resumePrompt: z.array(z.string()).optional(),
  }),
  /** Variables that it always has. Among them the switches of its telemetry and its updates. */
  environment: z.record(z.string(), z.string()).optional(),
  /**
   * Settings that are written inside before each start, over whatever is there. In their texts `{base-url}` stands for the URL of the
   * model without a path, `{key-end}` for the last 20 characters of the placeholder of its key, `{workspace}` for the workspace inside.
   */
  settings: z
    .array(
      z.strictObject({
        path: z.string(),
        format: z.enum(['json', 'toml']),
        values: z.record(z.string(), z.unknown()),
      }),
    )
    .optional(),
  /** What of the user’s own configuration is copied. Everything else is left out. */
  copies: z
    .strictObject({
      /** The directory of the configuration on this machine, and the variable that names another one. */
      home: z.strictObject({ path: z.string(), variable: z.string().optional() }),
      /** Texts, and directories of texts. */
      texts: z.array(z.strictObject({ from: z.string(), to: z.string() })).optional(),
      /** Keys of settings files, which are merged into those that acode writes. */
      keys: z
        .array(
          z.strictObject({
            from: z.array(z.string()).min(1),
            to: z.string(),
            format: z.enum(['json', 'toml']),
            keys: z.array(z.string()).optional(),
            /** The key that holds MCP servers, and which fields of a server are copied. */
            servers: z.strictObject({ key: z.string(), fields: z.array(z.string()) }).optional(),
          }),
        )
        .optional(),
    })
    .optional(),
  /** How it reaches its model. */
  network: z
    .strictObject({
      /** Entries of an allow-list. */
      allow: z.array(z.string()),
      /** The credential that acode adds outside; the program has a placeholder. */
      credential: z
        .strictObject({
          name: z.string(),
          /** Variables of this machine that may hold the value, where nothing says where it is. */
          variables: z.array(z.string()).optional(),
          from: z
            .union([
              z.strictObject({ env: z.string() }),
              z.strictObject({ file: z.string() }),
              z.strictObject({ command: z.array(z.string()).min(1) }),
            ])
            .optional(),
          hosts: z.array(z.string()).optional(),
          as: z
            .union([
              z.literal('bearer'),
              z.strictObject({ header: z.string() }),
              z.strictObject({ basic: z.string() }),
              z.strictObject({ query: z.string() }),
            ])
            .optional(),
          /** The variable that holds the placeholder inside. */
          variable: z.string().optional(),
          /** The variable that holds the base URL inside; with `inspect`, the host is reached by its own name. */
          baseUrlVariable: z.string().optional(),
          mode: z.enum(['base-url', 'inspect']).optional(),
          placeholder: z.string().optional(),
        })
        .optional(),
    })
    .optional(),
  /** How a person logs in, for `acode login`. */
  login: z
    .strictObject({
      authorize: z.url(),
      token: z.url(),
      client: z.string(),
      hosts: z.array(z.string()),
      /** What is asked for. */
      scopes: z.array(z.string()).optional(),
      /** Where the browser brings the code: a loopback address where acode waits, or a page that shows it. */
      redirect: z.string().optional(),
      /** How exchanges are written; `form` by default. */
      request: z.enum(['form', 'json']).optional(),
    })
    .optional(),
  /** Limits beyond those of profile `agent`, in bytes and numbers. */
  limits: z
    .strictObject({
      memoryBytes: z.int().positive().optional(),
      pids: z.int().positive().optional(),
      tmpBytes: z.int().positive().optional(),
    })
    .optional(),
  /** Why its own sandbox is off, as the end of a sentence; absent for an agent that has none. */
  ownSandbox: z.string().optional(),
});

/** A preset of a coding agent. */
export type AgentPreset = z.infer<typeof presetSchema>;

/** A package of npm that a program is made of. */
export type ProgramPackage = NonNullable<AgentPreset['program']>['packages'][number];

/** The schema of one agent in the user’s file: what differs from the preset of the same name, or from the one that it is like. */
export const changedPresetSchema = presetSchema
  .partial()
  .omit({ name: true })
  .extend({
    /** The preset that counts where this one says nothing. */
    like: z.string().optional(),
    /** More integrity hashes, such as those of another version. */
    integrity: z.record(z.string(), z.string()).optional(),
  });

/** What a user’s file says of one agent. */
export type ChangedPreset = z.infer<typeof changedPresetSchema>;
