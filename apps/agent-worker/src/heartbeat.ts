/** The heartbeats of workers, as far as a beating one needs them. */
export interface Beats {
  beat(id: string, ttlMs: number): Promise<void>;
  leave(id: string): Promise<void>;
}

const intervalMs = 750;
const ttlMs = 2_500;

/**
 * Says several times a second-and-a-half that this worker lives. When it dies its sessions are
 * given to others after `ttlMs`; when it only stalls they are too, and its late writes are fenced.
 */
export async function startHeartbeat(options: {
  presence: Beats;
  owner: string;
  onError: (error: unknown) => void;
}): Promise<{ close(): Promise<void> }> {
  const { presence, owner, onError } = options;
  const beat = async (): Promise<void> => await presence.beat(owner, ttlMs);
  await beat();
  const timer = setInterval(() => void beat().catch(onError), intervalMs);
  return {
    close: async () => {
      clearInterval(timer);
      await presence.leave(owner).catch(onError);
    },
  };
}
