import { sparkline } from "@/views/charts";

interface SparklineProps {
  values: readonly number[];
  /** The value at the top; without it, the highest value. */
  max?: number;
  /** What the curve shows. */
  label: string;
  width?: number;
  height?: number;
  color?: string;
}

/** A small curve of the last values, without axes. */
export function Sparkline({ values, max, label, width = 56, height = 20, color = "var(--n-9)" }: SparklineProps) {
  const { line, area, last } = sparkline(values, { width, height, max });
  return (
    <svg role="img" aria-label={label} width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
      {area && <path d={area} fill={color} opacity={0.12} />}
      {line && <path d={line} fill="none" stroke={color} strokeWidth={1.5} strokeLinejoin="round" />}
      {last && <circle cx={last.x} cy={last.y} r={2} fill={color} />}
    </svg>
  );
}
