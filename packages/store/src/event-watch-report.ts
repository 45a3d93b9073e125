/** A message that somebody wrote to a bot and of which no process of ours was ever told. */
export interface MissedMessage {
  messageId: string;
  chatId: string;
  createdAtMs: number;
}

/** What a look at the platform's own list of messages has found for one app. */
export interface EventWatchReport {
  app: string;
  checkedAtMs: number;
  /** Messages of people that were compared with what was received, in the last look. */
  compared: number;
  /** Those of the last day that never came, newest first; at most {@link maxMissed}. */
  missed: readonly MissedMessage[];
  /** Why the last look found out nothing, such as a missing right; a code, no content. */
  problem?: string;
}

/** How many missed messages a report holds. */
export const maxMissed = 20;

/** The newest report of each app, kept for a day. */
export interface EventWatchReports {
  save(report: EventWatchReport): Promise<void>;
  of(app: string): Promise<EventWatchReport | undefined>;
}
