// The languages that a workspace can be recognised to be written in.

/** Every one of them, in the order of the alphabet: in this order they are named together. */
export const LANGUAGES = ['dotnet', 'go', 'node', 'python', 'rust'] as const;

/** A language, named by what runs it. */
export type Language = (typeof LANGUAGES)[number];

/** A language of a workspace, and the file that says so. */
export interface LanguageFound {
  readonly language: Language;
  /** Its name, in the top directory of the workspace. */
  readonly file: string;
}
