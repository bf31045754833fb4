import type { Tone } from "@/views/fleet";

const COLORS: Record<Tone, string> = {
  plain: "var(--n-8)",
  quiet: "var(--n-8)",
  done: "var(--done)",
  running: "var(--running)",
  waiting: "var(--waiting)",
  failed: "var(--failed)",
};

interface MeterProps {
  /** What is measured. */
  label: string;
  percent: number;
  tone?: Tone;
}

/** A bar that is filled to a percentage. */
export function Meter({ label, percent, tone = "quiet" }: MeterProps) {
  return (
    <span
      role="meter"
      aria-label={label}
      aria-valuenow={Math.round(percent)}
      aria-valuemin={0}
      aria-valuemax={100}
      className="bar"
    >
      <i style={{ width: `${percent}%`, background: COLORS[tone] }} />
    </span>
  );
}

/** A bar of several parts; decoration beside a text that says the same. */
export function PartsBar({ parts, total }: { parts: readonly { value: number; color: string }[]; total: number }) {
  return (
    <span aria-hidden className="bar">
      {parts.map(({ value, color }) => (
        <i key={color} style={{ width: `${total ? (100 * value) / total : 0}%`, background: color }} />
      ))}
    </span>
  );
}
