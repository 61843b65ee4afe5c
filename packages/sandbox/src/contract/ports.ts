// The ports through which a host program sees and times what acode does: logger, metrics, clock.

/** Fields of one log event. Values are redacted before they reach a {@link Logger}. */
export type LogFields = Readonly<Record<string, unknown>>;

/**
 * Where log events go. A pino logger fits as it is.
 *
 * @example
 * await Acode.open({ logger: pino({ level: 'info' }) });
 */
export interface Logger {
  /** A detail for people who look for a fault. */
  debug(fields: LogFields, message: string): void;
  /** Something that happened as it should. */
  info(fields: LogFields, message: string): void;
  /** Something a person should know. */
  warn(fields: LogFields, message: string): void;
  /** Something that failed. */
  error(fields: LogFields, message: string): void;
}

/** Labels of one metric sample. */
export type MetricLabels = Readonly<Record<string, string>>;

/** Where metrics go. Nothing is ever sent anywhere by acode itself. */
export interface Metrics {
  /** Adds to a counter. */
  increment(name: string, labels?: MetricLabels, by?: number): void;
  /** Records one value of a histogram, in the unit its name ends with. */
  observe(name: string, value: number, labels?: MetricLabels): void;
  /** Sets a gauge. */
  gauge(name: string, value: number, labels?: MetricLabels): void;
}

/** Time, passed in so that tests own it. */
export interface Clock {
  /** Milliseconds since the epoch, for timestamps. */
  now(): number;
  /** Milliseconds from an arbitrary point that never jump, for durations. */
  monotonic(): number;
  /** Calls `action` once after `ms`; the returned function cancels it. */
  after(ms: number, action: () => void): () => void;
}
