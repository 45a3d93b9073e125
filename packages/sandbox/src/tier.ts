/** The ways of keeping a program in, the strongest first. */
export const sandboxTiers = ["bwrap", "sbx"] as const;
export type SandboxTier = (typeof sandboxTiers)[number];

/** Something that operators want to know and no caller is told: a failed boot, a slot that was given up. */
export interface SandboxEvent {
  event: "boot_failed" | "slot_discarded" | "remains_removed";
  detail: string;
}
