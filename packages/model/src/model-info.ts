/** Facts about a model. Prices are USD per million tokens, 0 = free or unknown. */
export interface ModelInfo {
  id: string;
  displayName: string;
  provider: string;
  contextWindow: number;
  maxOutputTokens: number;
  inputPricePer1M: number;
  outputPricePer1M: number;
  cacheReadPricePer1M: number;
  cacheWritePricePer1M: number;
  supportsCaching: boolean;
  supportsBatch: boolean;
  supportsThinking: boolean;
  supportsVision: boolean;
  /** Answers can be bound to a JSON Schema. */
  supportsJsonSchema: boolean;
  /** Least size of the system prompt, in tokens, that is worth caching; 0 = unsupported or unknown. */
  cachingMinTokens: number;
  /** Most tools in one request; 0 = unknown or unlimited. */
  maxTools: number;
  /** True: `maxTools` is proven and larger requests are refused locally. */
  maxToolsExhaustive: boolean;
}
