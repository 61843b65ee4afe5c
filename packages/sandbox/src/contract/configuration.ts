// Configuration files as data: which there are, what they set, what is wrong with them, and a change before it is made.

/** A layer that has a configuration file. */
export type ConfigLayer = 'machine' | 'team' | 'user' | 'repository';

/** Something that is wrong with a configuration file. */
export interface ConfigProblem {
  /** The code of the error that a command would end with. */
  readonly code: string;
  /** File, line, column and what is wrong. */
  readonly message: string;
  /** What to do about it. */
  readonly hint: string;
}

/** A configuration file, whether it exists or not. */
export interface ConfigFile {
  /** Whose file it is. */
  readonly layer: ConfigLayer;
  /** Its absolute path. */
  readonly path: string;
  /** Whether there is such a file. */
  readonly exists: boolean;
}

/** A configuration file and everything that is wrong with it. */
export interface CheckedConfigFile extends ConfigFile {
  /** Every problem, in the order of the file; empty for a valid file and for one that does not exist. */
  readonly problems: readonly ConfigProblem[];
  /** Old names that were understood. */
  readonly warnings: readonly string[];
}

/** A key that a configuration file sets. */
export interface ConfigValue {
  /** The key, with dots. */
  readonly key: string;
  /** The value as it is written; for lists that add up, the entries of this file. */
  readonly value: unknown;
  /** Whose file sets it. */
  readonly layer: ConfigLayer;
  /** File, line and column. */
  readonly where: string;
  /** Whether a stronger file sets the same key, so that this value has no effect. */
  readonly overridden: boolean;
}

/** A change of the user’s configuration file. */
export type ConfigChange =
  | {
      /** What to do: set the key to the values, add them to its list, or take it out. */
      readonly kind: 'set' | 'add';
      /** The key, with dots. */
      readonly key: string;
      /** The values as they were typed; a key that is not a list takes one. */
      readonly values: readonly string[];
    }
  | {
      /** Takes the key out. */
      readonly kind: 'unset';
      /** The key, with dots. */
      readonly key: string;
    }
  | {
      /** Replaces the text of the file. */
      readonly kind: 'text';
      /** The new text. */
      readonly text: string;
    };

/** A change of the configuration that loosens the policy. */
export interface LooseningChange {
  /** The key, with dots. */
  readonly key: string;
  /** Its value after the change, sizes in bytes; absent where it is taken out. */
  readonly value?: unknown;
  /** What the change allows, in one sentence. */
  readonly allows: string;
}

/** A change of the user’s configuration file that was checked and not made yet. */
export interface ConfigPlan {
  /** The file. */
  readonly file: string;
  /** Its text now; null where there is no file. */
  readonly before: string | null;
  /** Its text after the change, which is valid. */
  readonly after: string;
  /** What of the change loosens the policy, and so needs consent. */
  readonly loosens: readonly LooseningChange[];
}

/** How a person agreed to something that loosens the policy; recorded in the audit log. */
export interface Consent {
  /** `terminal`: a person answered a question. `option`: the caller said that a person agreed (`--yes`). */
  readonly how: 'terminal' | 'option';
  /** The name of the program that called acode; null if unknown. */
  readonly parent: string | null;
}

/** The configuration files of the user, and of the workspace and the machine. */
export interface Configuration {
  /** Every key that a file may set, with dots. */
  keys(): readonly string[];
  /** The files, strongest first, whether they exist or not. The machine’s policy bounds all of them, and comes last. */
  files(): Promise<readonly ConfigFile[]>;
  /** What the files set: all of it, or one key. Throws for a key that does not exist. */
  get(key?: string): Promise<readonly ConfigValue[]>;
  /**
   * Checks every file, or one that is not in its place yet.
   *
   * @param file the file to check; with `as`, by the rules of that layer, else of the layer that its name suggests.
   */
  check(file?: string, as?: ConfigLayer): Promise<readonly CheckedConfigFile[]>;
  /** The text of the user’s file; null where there is none. */
  read(): Promise<string | null>;
  /** The text that a new file begins with: editors find the schema by its first line. */
  newFile(): string;
  /** Everything that is wrong with a text, as the user’s file. */
  problemsIn(text: string): Promise<readonly ConfigProblem[]>;
  /** Checks a change of the user’s file. Throws where the result would not be valid. Changes nothing. */
  plan(change: ConfigChange): Promise<ConfigPlan>;
  /**
   * Makes a planned change, unless the file was changed meanwhile. A change that loosens needs consent, and is in the audit
   * log before it is made.
   */
  install(plan: ConfigPlan, consent?: Consent): Promise<void>;
}
