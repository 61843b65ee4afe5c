// Provenance: a value together with the layer of configuration that set it.

/**
 * The layers a value can come from, weakest voice first. `machine` sets ceilings only; `team` holds the defaults of everyone
 * on this machine; `repository` is untrusted and may tighten, unless the user trusted that very content.
 */
export type Layer = 'built-in' | 'machine' | 'team' | 'user' | 'repository' | 'request';

/** A value and the layer that set it. */
export interface Sourced<Value = unknown> {
  /** The value. */
  readonly value: Value;
  /** The layer that set it. */
  readonly layer: Layer;
  /** The place in that layer: a field of the request, or file, line, column and key. */
  readonly where: string;
}

/** The layer and the place of a value, without the value. */
export type Source = Pick<Sourced, 'layer' | 'where'>;
